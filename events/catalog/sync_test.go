package catalog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
)

// However many callers Sync at once, each sees everything stored before its call.
func TestSyncSeesWhatWasStoredBefore(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	one, other := eventstest.View(t, log), eventstest.View(t, log)
	var g errgroup.Group
	for range 100 {
		g.Go(func() error {
			id := sandbox.NewID()
			if _, err := one.CreateSandbox(t.Context(), "alice", id, sandbox.Requested{}); err != nil {
				return err
			}
			if err := other.Sync(t.Context()); err != nil {
				return err
			}
			if _, ok := other.Sandbox(id); !ok {
				return errors.New("a sandbox stored before the call is missing")
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// spy returns the requests to the server since the last call.
func spy(t *testing.T, srv *eventstest.Server) (asked func() []*nats.Msg) {
	t.Helper()
	nc := eventstest.JetStream(t, srv).Conn()
	sub, err := nc.SubscribeSync("$JS.API.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() (all []*nats.Msg) {
		t.Helper()
		err := nc.Flush()
		for n, _, _ := sub.Pending(); n > 0 && err == nil; n-- {
			var m *nats.Msg
			m, err = sub.NextMsg(time.Minute)
			all = append(all, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
}

// Concurrent callers share the requests to the streams' leaders.
func TestSyncsAreShared(t *testing.T) {
	srv := eventstest.Start(t)
	view := eventstest.View(t, eventstest.Open(t, srv))
	asked := spy(t, srv)
	const syncs, streams = 200, 9
	var g errgroup.Group
	for range syncs {
		g.Go(func() error { return view.Sync(t.Context()) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	reads := 0
	for _, m := range asked() {
		if strings.HasPrefix(m.Subject, "$JS.API.STREAM.MSG.GET.") {
			reads++
		}
	}
	if reads < streams || reads > syncs*streams/4 {
		t.Errorf("%d reads for %d syncs of %d streams", reads, syncs, streams)
	}
	t.Logf("%d reads for %d syncs of %d streams", reads, syncs, streams)
}

// A question about processes asks the leaders of their streams alone, and its answer has everything
// that was stored before it.
func TestSyncProcessesAsksTwoStreams(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	one, other := eventstest.View(t, log), eventstest.View(t, log)
	sbx := sandbox.NewID()
	if _, err := one.CreateSandbox(t.Context(), "alice", sbx, sandbox.Requested{}); err != nil {
		t.Fatal(err)
	}
	id := ended(t, log, sbx, 7, 0)
	asked := spy(t, srv)
	if err := catalog.SyncProcesses(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	var reads []string
	for _, m := range asked() {
		if _, stream, ok := strings.Cut(m.Subject, "$JS.API.STREAM.MSG.GET."); ok {
			reads = append(reads, stream)
		}
	}
	if slices.Sort(reads); !slices.Equal(reads, []string{"PROC", "SBX"}) {
		t.Errorf("asked %v, want PROC and SBX", reads)
	}
	_, known := other.Sandbox(sbx)
	if _, _, ok := other.Process(id); !ok || !known {
		t.Errorf("the view has the sandbox: %v; the process: %v", known, ok)
	}
}

// A process that is the only one connected to the servers asks them once, and again after they
// restarted. Its views have what was stored through any of its connections.
func TestSyncOfALoneProcessAsksOnce(t *testing.T) {
	srv := eventstest.Start(t)
	alone := events.Config{Name: t.Name(), Ends: events.NewEnds()}
	front, back := eventstest.OpenWith(t, srv, alone), eventstest.OpenWith(t, srv, alone)
	view, other := eventstest.View(t, front), eventstest.View(t, back)
	var g errgroup.Group
	for range 100 {
		g.Go(func() error {
			id := sandbox.NewID()
			if _, err := other.CreateSandbox(t.Context(), "alice", id, sandbox.Requested{}); err != nil {
				return err
			}
			if err := view.Sync(t.Context()); err != nil {
				return err
			}
			if _, ok := view.Sandbox(id); !ok {
				return errors.New("a sandbox stored through another connection is missing")
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	requests := eventstest.Requests(t, srv)
	for range 10 {
		if err := view.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := requests(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
	again, againBack := front.Reconnected(), back.Reconnected()
	srv.Restart()
	<-again
	<-againBack
	requests = eventstest.Requests(t, srv)
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if requests() == 0 {
		t.Error("no request after a restart of the server")
	}
}

func BenchmarkSync(b *testing.B) {
	view := eventstest.View(b, eventstest.Open(b, eventstest.Start(b)))
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if err := view.Sync(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("processes", func(b *testing.B) {
		for b.Loop() {
			if err := catalog.SyncProcesses(b.Context(), view); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		b.SetParallelism(50)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := view.Sync(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
