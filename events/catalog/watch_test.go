package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

func TestATailReturnsAllMatchingRecords(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	ids := []sandbox.ID{sandbox.NewID(), sandbox.NewID()}
	for i, id := range ids {
		if _, err := view.CreateSandbox(t.Context(), fmt.Sprint("t", i), id, sandbox.Requested{}); err != nil {
			t.Fatal(err)
		}
		eventstest.AppendAll(t, log.Writer(record.Ref{Host: eventstest.Host, ID: process.NewID(id)}, 1), eventstest.Script(10), 3)
	}
	count := func(f catalog.TailFilter) map[string]int {
		n := map[string]int{}
		if err := view.Tail(t.Context(), f, func(e catalog.TailEvent) error {
			n[e.Stream]++
			return nil
		}); err != nil {
			t.Error(err)
		}
		return n
	}
	for _, tt := range []struct {
		f                  catalog.TailFilter
		sandboxes, process int
	}{
		{catalog.TailFilter{}, 2, 20},
		{catalog.TailFilter{Tenant: "t1"}, 1, 10},
		{catalog.TailFilter{Sandbox: ids[0]}, 1, 10},
		{catalog.TailFilter{Tenant: "t1", Sandbox: ids[0]}, 0, 0},
	} {
		if got := count(tt.f); got["sandbox"] != tt.sandboxes || got["process"] != tt.process {
			t.Errorf("%+v: got %v, want %d and %d", tt.f, got, tt.sandboxes, tt.process)
		}
	}
}

func TestAFollowingTailReturnsNewEvents(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	id := sandbox.NewID()
	if _, err := view.CreateSandbox(t.Context(), "t", id, sandbox.Requested{}); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	w := log.Writer(record.Ref{Host: eventstest.Host, ID: process.NewID(id)}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		done <- view.Tail(ctx, catalog.TailFilter{Follow: true}, func(e catalog.TailEvent) error {
			first <- struct{}{}
			if _, ok := e.Process.Body.(process.Finished); ok {
				return enough
			}
			return nil
		})
	}()
	// The tail starts at some time after now: events follow until it has returned one, then
	// the record ends.
	all := eventstest.Script(2000)
	for i := 0; i < len(all)-2; i += 2 {
		eventstest.AppendAll(t, w, all[i:i+2], 2)
		if len(first) > 0 {
			eventstest.AppendAll(t, w, []process.Event{{Seq: w.Last() + 1, Body: process.Finished{}}}, 1)
			break
		}
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("Tail = %v", err)
	}
}
