package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway"
)

// rollUps starts a gateway that rolls up usage at short intervals, and removes the usage of single sandboxes as soon
// as it may.
func (u *userFixture) rollUps(cents int64) *fixture {
	u.t.Helper()
	f := *u.fixture
	f.serve(gateway.Config{Listen: "127.0.0.1:0", Users: gateway.UsersConfig{Now: u.clock.Now, Mail: u.mail.mailer(u.t)}, Billing: gateway.BillingConfig{
		Price: usage.Price{CPUHour: cents * 1000}, Interval: 20 * time.Millisecond, Keep: time.Nanosecond, Now: u.clock.Now,
	}})
	return &f
}

// Two gateways roll up the same usage, at other prices later and after the facts were removed, and the cents stay
// the same. A fact that has not ended, or whose day is not settled, is not removed.
func TestRollUpTwice(t *testing.T) {
	u := newUserFixture(t)
	u.midMonth()
	you := u.signUp("you@example.com")
	at := u.clock.Now()
	ended := usage.New(you.TenantID, "i2", usage.Sandbox, at).Measure(at, time.Hour).End(at, false)
	if err := u.log.Meter().Put(t.Context(), &ended); err != nil {
		t.Fatal(err)
	}
	u.used(you.TenantID, "i1", 0, 2*time.Hour, 0) // after the other one, because the last message of a stream is never removed
	u.rollUps(5)
	books, facts := u.log.Ledger(), u.log.Meter()
	if err := books.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	until := func(what string, ok func(ledger.Book) bool) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; ; <-tick.C {
			if err := books.Sync(ctx); err != nil {
				t.Fatalf("%s: %v, %+v", what, err, books.Book(you.TenantID))
			}
			if ok(books.Book(you.TenantID)) {
				return
			}
		}
	}
	until("first roll-up", func(b ledger.Book) bool { return b.Balance() == -15 && len(b.Days) == 1 })
	u.rollUps(50) // a higher price, which applies to days that were not stored
	for _, id := range []string{"i1", "i2"} {
		if _, ok, err := facts.Read(ctx, you.TenantID, id); err != nil || !ok {
			t.Errorf("%s of a day that is not settled: %v, %v", id, ok, err)
		}
	}
	u.as(you.Token, "GET", "/v1/billing/balance", "").want(t, "balance", 200, `{"credit_balance":-15}`)
	u.clock.move((ledger.SettleAfter + 1) * 24 * time.Hour)
	until("settled", func(b ledger.Book) bool { return b.Days[0].Settled })
	until("removed", func(ledger.Book) bool {
		_, ok, err := facts.Read(ctx, you.TenantID, "i2")
		return err == nil && !ok
	})
	if _, ok, err := facts.Read(ctx, you.TenantID, "i1"); err != nil || !ok {
		t.Errorf("a fact that has not ended: %v, %v", ok, err)
	}
	until("after the removal", func(b ledger.Book) bool { return b.Balance() == -15 && b.Days[0].Sandboxes == 2 })
}
