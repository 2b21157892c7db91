package rekey

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/reseal"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal/sealtest"
)

// newWorker returns a worker that does not wait.
func newWorker(t *testing.T, log *events.Log) *worker {
	t.Helper()
	cfg := Config{Log: log, Slog: slog.New(slog.DiscardHandler), Service: "reaper"}
	return &worker{cfg: cfg, ring: eventstest.Ring(t, log), clean: make(map[uint32]time.Time), last: make(map[uint32]reseal.Found)}
}

func secrets(t *testing.T, log *events.Log, n int) {
	t.Helper()
	ring := eventstest.Ring(t, log)
	for i := range n {
		s := catalog.Secret{ID: "sec_" + strings.Repeat("x", i+1), Tenant: "alice", Name: strings.Repeat("x", i+1), Version: 1}
		s.Sealed = sealtest.Seal(t, ring, s.Place(), "canary")
		if err := log.NewSecret(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
}

func old(t *testing.T, log *events.Log) int {
	t.Helper()
	s, err := log.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Old)
}

// A replaced key is removed after the second search without a value of it, and all values open
// without it.
func TestAReplacedKeyIsRemoved(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	secrets(t, log, 3)
	if _, err := log.RotateData(t.Context(), "op", 1, false); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, log)
	w.look(t.Context()) // seals values again, first search
	if use, ok, err := log.LastUse(t.Context()); !ok || err != nil || use.Resealed != 3 || use.Left != 0 || use.Current != 2 || old(t, log) != 1 {
		t.Fatalf("%+v, %v, %d old keys", use, err, old(t, log))
	}
	w.look(t.Context()) // second search
	if n := old(t, log); n != 0 {
		t.Fatalf("%d old keys are left", n)
	}
	view, ring := eventstest.View(t, log), eventstest.Ring(t, log)
	for _, s := range view.TenantSecrets("alice") {
		if got, err := ring.Open(s.Place(), s.Sealed); got != "canary" || err != nil {
			t.Errorf("%s: %q, %v", s.ID, got, err)
		}
	}
}

// A key that a record needs stays, and so does one that was replaced a short time ago.
func TestAKeyInUseStays(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ring := eventstest.Ring(t, log)
	h, err := sandbox.ParseHeader(ring, "alice", "a.test", "X-Key", "canary")
	if err != nil {
		t.Fatal(err)
	}
	network := sandbox.Network{Transforms: []sandbox.Transform{{Domain: "a.test", Headers: []sandbox.Header{h}}}}
	if _, err := log.AppendSandbox(t.Context(), "alice", sandbox.NewID(), 0, 1, sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: time.Hour}}, sandbox.NetworkSet{Network: network}); err != nil {
		t.Fatal(err)
	}
	if _, err := log.RotateData(t.Context(), "op", 1, false); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, log)
	for range 4 {
		w.look(t.Context())
	}
	use, _, err := log.LastUse(t.Context())
	if n := old(t, log); n != 1 || err != nil || len(use.Kept) != 1 || use.Kept[0].Stream != "SBX" || use.Kept[0].Stored.IsZero() {
		t.Errorf("%d old keys, %+v, %v", n, use, err)
	}

	log = eventstest.Open(t, eventstest.Start(t))
	secrets(t, log, 1)
	if _, err := log.RotateData(t.Context(), "op", 1, false); err != nil {
		t.Fatal(err)
	}
	w = newWorker(t, log)
	w.cfg.Grace = time.Hour
	for range 4 {
		w.look(t.Context())
	}
	if n := old(t, log); n != 1 {
		t.Errorf("%d old keys within the grace time", n)
	}
}

// Reapers that work at once finish what one of them leaves.
func TestSeveralReapersAtOnce(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	secrets(t, log, 40)
	if _, err := log.RotateData(t.Context(), "op", 1, false); err != nil {
		t.Fatal(err)
	}
	killed, kill := context.WithCancel(t.Context())
	defer kill()
	var all sync.WaitGroup
	for i := range 3 {
		w, ctx := newWorker(t, eventstest.Open(t, srv)), t.Context()
		if i == 0 {
			ctx = killed
		}
		all.Go(func() {
			for range 3 {
				w.look(ctx)
				kill()
			}
		})
	}
	all.Wait()
	if n := old(t, log); n != 0 {
		t.Errorf("%d old keys are left", n)
	}
	ring := eventstest.Ring(t, log)
	for _, s := range eventstest.View(t, log).TenantSecrets("alice") {
		if got, err := ring.Open(s.Place(), s.Sealed); got != "canary" || err != nil || !ring.Current(s.Sealed) {
			t.Errorf("%s: %q, %v", s.ID, got, err)
		}
	}
}
