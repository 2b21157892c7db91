package bundlestore_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/bundlestore"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
)

func state(t *testing.T, s *bundlestore.Store, tenant string) bundle.State {
	t.Helper()
	st, err := s.State(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func has(t *testing.T, s *bundlestore.Store, tenant string, g bundle.Generation) bool {
	t.Helper()
	v, ok, err := s.Value(t.Context(), tenant, g, 0)
	if err != nil || ok && (v.Key != "A" || v.Sealed != "sealed") {
		t.Fatalf("%+v, %v", v, err)
	}
	return ok
}

func put(t *testing.T, s *bundlestore.Store, tenant string, g bundle.Generation) {
	t.Helper()
	if err := s.PutValue(t.Context(), tenant, g, 0, bundle.Value{Key: "A", Sealed: "sealed"}); err != nil {
		t.Fatal(err)
	}
}

// Of two writers with the same event one succeeds, and tenants do not wait for each other. The state
// survives a restart of the server.
func TestOneOfTwoWritersSucceeds(t *testing.T) {
	srv := eventstest.Start(t)
	first, second := eventstest.Open(t, srv).Bundles(), eventstest.Open(t, srv).Bundles()
	at := time.Now()
	for _, b := range []bundle.Body{
		bundle.Created{Name: "b", Keys: []string{"A"}, Generation: "g1", At: at}, bundle.Rotated{Name: "b", Keys: []string{"A", "B"}, Generation: "g2", At: at.Add(time.Hour)},
	} {
		one, two, other := state(t, first, "alice"), state(t, second, "alice"), state(t, second, "bob"+b.Kind())
		if _, _, err := first.Append(t.Context(), &one, b); err != nil {
			t.Fatal(err)
		}
		if _, _, err := second.Append(t.Context(), &two, b); !kind.Is(err, kind.Conflict) || kind.Code(err) != "conflict" {
			t.Errorf("%s by both: %v", b.Kind(), err)
		}
		if _, _, err := second.Append(t.Context(), &other, bundle.Created{Name: "b"}); err != nil {
			t.Errorf("another tenant: %v", err)
		}
	}
	srv.Restart()
	st := state(t, eventstest.Open(t, srv).Bundles(), "alice")
	h, err := st.Find("b")
	if err != nil || len(st.Heads) != 1 || h.Generation != "g2" || len(h.Keys) != 2 || !h.Created.Equal(at) || !h.Rotated.Equal(at.Add(time.Hour)) {
		t.Errorf("%+v, %v", st, err)
	}
}

// A sweep removes values that no head names, after a while, and no others.
func TestSweep(t *testing.T) {
	s := eventstest.Open(t, eventstest.Start(t)).Bundles()
	st := state(t, s, "alice")
	put(t, s, "alice", "valid")
	if _, _, err := s.Append(t.Context(), &st, bundle.Created{Name: "b", Keys: []string{"A"}, Generation: "valid"}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "alice", "half")
	put(t, s, "bob", "half")
	put(t, s, "bob", "valid") // a generation of another tenant
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{59 * time.Minute, 0}, {61 * time.Minute, 3}, {61 * time.Minute, 0}} {
		if n, err := s.Sweep(t.Context(), time.Now().Add(tt.after)); n != tt.want || err != nil {
			t.Errorf("after %v: %d generations, %v; want %d", tt.after, n, err, tt.want)
		}
	}
	if !has(t, s, "alice", "valid") || has(t, s, "alice", "half") || has(t, s, "bob", "half") || has(t, s, "bob", "valid") {
		t.Error("the wrong values were removed")
	}
	if err := s.Remove(t.Context(), "alice", "valid"); err != nil || has(t, s, "alice", "valid") {
		t.Errorf("removed: %v", err)
	}
}
