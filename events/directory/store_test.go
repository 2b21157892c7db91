package directory_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/directory"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
)

const you = account.Address("you@example.com")

func open(t *testing.T, srv *eventstest.Server) *directory.Store {
	t.Helper()
	s := eventstest.Open(t, srv).Directory()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, s)
	return s
}

func sync(t *testing.T, s *directory.Store) {
	t.Helper()
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func requested(at time.Time) account.Requested {
	return account.Requested{Address: you, Code: account.Code{Nonce: at.String(), Hash: "h", Sent: at}}
}

func appended(t *testing.T, s *directory.Store, b account.Body) account.State {
	t.Helper()
	a := s.Account(you)
	next, err := s.Append(t.Context(), &a, b)
	if err != nil {
		t.Fatal(err)
	}
	sync(t, s)
	return next
}

// Of two writers with the same event one succeeds, and the other one reads what it stored. The
// state survives a restart of the server.
func TestOneOfTwoWritersSucceeds(t *testing.T) {
	srv := eventstest.Start(t)
	first, second := open(t, srv), open(t, srv)
	now := time.Now()
	appended(t, first, requested(now))
	for _, b := range []account.Body{account.Missed{}, account.Verified{Tenant: "usr_1", At: now}} {
		sync(t, second)
		a := second.Account(you)
		appended(t, first, b)
		if _, err := second.Append(t.Context(), &a, b); !kind.Is(err, kind.Conflict) {
			t.Errorf("%s by both: %v", b.Kind(), err)
		}
		if next := second.Account(you); next.Rev == a.Rev {
			t.Errorf("after a conflict the view is as before: %+v", next)
		}
	}
	x := first.Source("c0000201")
	x.Requests = []time.Time{now}
	if err := first.PutSource(t.Context(), &x); err != nil {
		t.Fatal(err)
	}
	if err := second.PutSource(t.Context(), &x); !kind.Is(err, kind.Conflict) {
		t.Errorf("the same count by both: %v", err)
	}
	srv.Restart()
	third := open(t, srv)
	a, ok := third.AccountOf("usr_1")
	if !ok || a.Address != you || !a.Created.Equal(now) || a.Phase() != account.Idle || len(a.Sent) != 1 || !a.Sent[0].Equal(now) {
		t.Errorf("after a restart: %+v, %v", a, ok)
	}
	if x := third.Source("c0000201"); len(x.Requests) != 1 || !x.Requests[0].Equal(now) {
		t.Errorf("after a restart: %+v", x)
	}
}

// Verified accounts stay for ever. What is removed is created again, also by a gateway whose view
// still has it.
func TestSweep(t *testing.T) {
	srv := eventstest.Start(t)
	s := open(t, srv)
	now := time.Now()
	appended(t, s, requested(now))
	if err := s.Sweep(t.Context(), now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if a := s.Account(you); a.Rev == 0 {
		t.Error("an account was dropped too early")
	}
	if err := s.Sweep(t.Context(), now.Add(4*time.Hour)); err != nil {
		t.Fatal(err)
	}
	a := s.Account(you)
	if a.Rev != 0 {
		t.Errorf("an account that was never verified stays: %+v", a)
	}
	if _, err := s.Append(t.Context(), &a, requested(now)); !kind.Is(err, kind.Conflict) {
		t.Errorf("the log still has the account: %v", err)
	}
	appended(t, s, account.Missed{}) // the conflict has brought it back
}
