package share_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/share"
)

func TestNew(t *testing.T) {
	now := time.Unix(1000, 0)
	id := process.NewID("i1")
	for _, tt := range []struct {
		name string
		to   share.Target
		age  time.Duration
		want time.Duration // 0: invalid
	}{
		{"a process", share.Target{Process: id}, time.Hour, time.Hour},
		{"up to an event", share.Target{Process: id, Seq: 3}, time.Hour, time.Hour},
		{"a sandbox", share.Target{Sandbox: "i1"}, 0, share.DefaultAge},
		{"the longest", share.Target{Sandbox: "i1"}, share.MaxAge, share.MaxAge},
		{"too long", share.Target{Sandbox: "i1"}, share.MaxAge + 1, 0},
		{"negative", share.Target{Sandbox: "i1"}, -1, 0},
		{"a sandbox up to an event", share.Target{Sandbox: "i1", Seq: 3}, time.Hour, 0},
	} {
		x, token, err := share.New("t", tt.to, tt.age, now)
		if tt.want == 0 {
			if !kind.Is(err, kind.Invalid) {
				t.Errorf("%s: %+v, %v", tt.name, x, err)
			}
			continue
		}
		h, ok := share.ParseToken(token)
		if err != nil || !ok || h != x.Hash || x.Sandbox != "i1" || !x.Expires.Equal(now.Add(tt.want)) {
			t.Errorf("%s: %+v, token %q, %v", tt.name, x, token, err)
		}
		if _, err := share.ParseID(string(x.ID)); err != nil || !x.Reads(id) || x.Reads(process.NewID("i2")) {
			t.Errorf("%s: %+v, %v", tt.name, x, err)
		}
		if other := process.NewID("i1"); x.Reads(other) != (tt.to.Process == "") {
			t.Errorf("%s: another process of the sandbox: %v", tt.name, x.Reads(other))
		}
	}
}

func TestParseToken(t *testing.T) {
	_, token, err := share.New("t", share.Target{Sandbox: "i1"}, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"", "msh_", token[1:], token + "x", strings.Replace(token, "msh_", "e2b_", 1)} {
		if _, ok := share.ParseToken(s); ok {
			t.Errorf("%q is a token", s)
		}
	}
}

func TestParseID(t *testing.T) {
	for _, id := range []string{"", "*", ">", "A.B", "a", "A B", strings.Repeat("A", 65)} {
		if got, err := share.ParseID(id); !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %q, %v", id, got, err)
		}
	}
}

func open(t *testing.T, srv *eventstest.Server) *share.Store {
	t.Helper()
	s := eventstest.Open(t, srv).Shares()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// A share is found by the hash of its token, by another view and after a restart of the server, until
// its tenant revokes it.
func TestSharesAreFoundUntilTheyAreRevoked(t *testing.T) {
	srv := eventstest.Start(t)
	s := open(t, srv)
	x, token, err := share.New("t", share.Target{Process: process.NewID("i1"), Seq: 7}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), &x); err != nil {
		t.Fatal(err)
	}
	srv.Restart()
	after := open(t, srv)
	h, _ := share.ParseToken(token)
	got, ok := after.Find(h)
	if _, over := got.Ended(time.Now()); !ok || over || got.Process != x.Process || got.Seq != 7 || !got.Expires.Equal(x.Expires) {
		t.Errorf("%+v, %v; want %+v", got, ok, x)
	}
	if err := after.Revoke(t.Context(), "another", x.ID); !kind.Is(err, kind.NotFound) {
		t.Errorf("revoked by another tenant: %v", err)
	}
	for range 2 {
		if err := after.Revoke(t.Context(), "t", x.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, ok = s.Find(h)
	if _, over := got.Ended(time.Now()); !ok || !over {
		t.Errorf("after it was revoked: %+v, %v", got, ok)
	}
}

// A share leaves the view and the log some time after it expired.
func TestSweep(t *testing.T) {
	srv := eventstest.Start(t)
	s := open(t, srv)
	var tokens []string
	for _, made := range []time.Time{time.Now().Add(-3 * share.Keep), time.Now()} {
		x, token, err := share.New("t", share.Target{Sandbox: "i1"}, time.Hour, made)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Create(t.Context(), &x); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		h, _ := share.ParseToken(tokens[i])
		if x, ok := s.Find(h); ok != want {
			t.Errorf("share %d: %+v, %v", i, x, ok)
		}
	}
}
