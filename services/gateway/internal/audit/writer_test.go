package audit

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/events/kind"
)

// trail keeps links in memory. While gate is open for reading nothing is stored.
type trail struct {
	mu    sync.Mutex
	gate  chan struct{}
	links []audit.Link
	fail  []error // errors of the next appends
}

func (s *trail) AppendAudit(_ context.Context, _ string, rev uint64, links []audit.Link) (uint64, error) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fail) > 0 {
		err := s.fail[0]
		s.fail = s.fail[1:]
		return 0, err
	}
	s.links = append(s.links, links...)
	return rev + 1, nil
}

func (s *trail) ReadAudit(context.Context, uint64) ([]audit.Link, uint64, error) {
	return s.links, 0, nil
}

// verified returns the entries of a trail, which must be complete chains.
func (s *trail) verified(t *testing.T) (all []audit.Entry, v audit.Verifier) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.links {
		e, err := v.Add(&s.links[i])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all, v
}

func run(t *testing.T, s *trail) (w *Writer, stop func()) {
	t.Helper()
	w = NewWriter(s, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return w, stop
}

// Denials that wait are stored together, equal ones as one entry, and none is lost at a stop.
func TestDenialsThatWait(t *testing.T) {
	s := &trail{gate: make(chan struct{})}
	w, stop := run(t, s)
	w.add(audit.Entry{Event: "a"})
	s.gate <- struct{}{} // the first one is stored, or is about to be
	const n = 1000
	for i := range n {
		w.add(audit.Entry{Event: []string{"b", "c"}[i%2]})
	}
	close(s.gate)
	stop()
	all, v := s.verified(t)
	count := map[string]int{}
	for _, e := range all {
		count[e.Event] += e.Count
	}
	if count["a"] != 1 || count["b"] != n/2 || count["c"] != n/2 || len(all) > 7 || len(v.Chains) != 1 {
		t.Errorf("%v in %d entries of %d chains", count, len(all), len(v.Chains))
	}
}

// A denial returns when it is stored, also after errors; a chain whose end is lost is continued
// by another one.
func TestDenialsAreStored(t *testing.T) {
	s := &trail{fail: []error{kind.New(kind.Unavailable, "", "", "x"), kind.New(kind.Unavailable, "", "", "x")}}
	w, _ := run(t, s)
	w.Deny(t.Context(), audit.Entry{Event: "a"})
	if all, _ := s.verified(t); len(all) != 1 {
		t.Fatalf("%v", all)
	}
	s.mu.Lock()
	s.fail = []error{kind.New(kind.Conflict, "", "", "x")}
	s.mu.Unlock()
	w.Deny(t.Context(), audit.Entry{Event: "b"})
	if all, v := s.verified(t); len(all) != 2 || len(v.Chains) != 2 {
		t.Errorf("%v in %d chains", all, len(v.Chains))
	}
}
