package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway"
)

// A tenant without credits gets no new sandboxes and sessions if the gateway is configured so. Those that exist
// stay, and a payment is enough to go on.
func TestNoCredits(t *testing.T) {
	u := newUserFixture(t)
	you := u.signUp("you@example.com")
	pay := func(id string, cents int64) {
		t.Helper()
		if _, err := u.log.Ledger().Add(t.Context(), ledger.Entry{Tenant: you.TenantID, ID: id, Kind: ledger.Payment, Cents: cents, At: u.clock.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	f := *u.fixture
	f.serve(gateway.Config{
		Listen: "127.0.0.1:0", Users: gateway.UsersConfig{Now: u.clock.Now, Mail: u.mail.mailer(t)},
		Billing: gateway.BillingConfig{Price: usage.Price{CPUHour: 5000}, Now: u.clock.Now, Refuse: true},
	})
	f.withRuntimes()
	refused := func(what string) {
		t.Helper()
		f.as(you.APIKey, "POST", "/v1/sandboxes", standard).failed(t, what+": sandbox", http.StatusPaymentRequired, "insufficient_credits")
		f.as(you.APIKey, "POST", "/v1/sessions", sessionBody).failed(t, what+": session", http.StatusPaymentRequired, "insufficient_credits")
	}
	refused("a balance of 0")
	f.as(you.APIKey, "POST", "/v1/sandboxes", `{"template":"zzz"}`).failed(t, "an invalid body", 501, "unknown_template")

	pay("pi_1", 5)
	vm := f.newVM(you.APIKey, standard)
	keyed := func(want int) answer {
		t.Helper()
		a := f.do("POST", "/v1/sandboxes", standard, "X-Api-Key", "", "Authorization", "Bearer "+you.APIKey, "Idempotency-Key", "k")
		a.want(t, "with a key", want, "")
		return a
	}
	was := keyed(201)
	var s chat
	f.as(you.APIKey, "POST", "/v1/sessions", sessionBody).want(t, "session", 201, "").decode(t, &s)

	u.used(you.TenantID, "i1", 1, time.Hour, 0) // 5 cents
	refused("used up")
	u.newVM(you.APIKey, standard) // another gateway, which refuses nothing
	if again := keyed(201); again.body != was.body {
		t.Errorf("a repeated create: %s, want %s", again.body, was.body)
	}
	f.as(you.APIKey, "POST", "/v1/sandboxes/"+vm+"/exec", `{"command":"true"}`).want(t, "a sandbox that exists", 200, "")
	f.as(you.APIKey, "GET", "/v1/sandboxes/"+vm, "").want(t, "a sandbox that exists", 200, "")
	f.as(you.APIKey, "DELETE", "/v1/sandboxes/"+s.VM, "").want(t, "delete", 200, "")
	resume := `{"chat_session_id":"` + s.ID + `"}`
	f.as(you.APIKey, "POST", "/v1/sessions/resume", resume).failed(t, "resume", http.StatusPaymentRequired, "insufficient_credits")

	pay("pi_2", 1)
	f.newVM(you.APIKey, standard)
	f.as(you.APIKey, "POST", "/v1/sessions/resume", resume).want(t, "resume", 200, "")
}
