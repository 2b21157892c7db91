package events_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// Requests in flight when the server stops are retried as soon as it is back, not after
// their timeout.
func TestARestartDelaysWritersAndReadersByLittleMoreThanTheOutage(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ref := eventstest.NewRef()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	appends := make(chan []time.Duration, 1)
	go func() { appends <- appendUntil(ctx, t, log.Writer(ref, 1)) }()
	r := log.Read(ref, 0)
	defer r.Close()
	var silences []time.Duration
	var outage time.Duration
	last := time.Now()
	const restarts = 6
	for i, seq := 0, process.Seq(0); i < restarts; {
		batch, err := r.Next(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		silences = append(silences, time.Since(last))
		for _, e := range batch {
			if seq++; e.Seq != seq {
				t.Fatalf("got event %d, want %d", e.Seq, seq)
			}
		}
		last = time.Now()
		if seq > process.Seq(i*50) {
			srv.Restart()
			outage = max(outage, time.Since(last))
			i++
		}
	}
	stop()
	// An attempt may take two seconds: waiting for its timeout after each restart would exceed this.
	// A loaded machine may be slow after some of them.
	const most = time.Second
	took, silence := typical(<-appends, restarts), typical(silences, restarts)
	if took > outage+most || silence > outage+most {
		t.Errorf("outages of up to %v: an append took %v, a reader waited %v", outage, took, silence)
	} else {
		t.Logf("outages of up to %v: an append took %v, a reader waited %v", outage, took, silence)
	}
}

// typical returns the median of the n longest durations.
func typical(all []time.Duration, n int) time.Duration {
	slices.Sort(all)
	return all[max(0, len(all)-1-n/2)]
}

// A lone server loses what it had in memory. Commands are answered anyway, including those
// in flight.
func TestCommandsAreAnsweredAcrossServerRestarts(t *testing.T) {
	srv := eventstest.Start(t)
	gateway, host := eventstest.Open(t, srv), eventstest.Open(t, srv)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- host.Commands(ctx, eventstest.Host, 0, func(c command.Command) error {
			host.Reply(c, command.Reply{Offset: c.Rev})
			return nil
		})
	}()
	defer func() { stop(); <-served }()
	id := eventstest.NewRef().ID
	answered := make(chan struct{}, 1<<16)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for ctx.Err() == nil {
				c := command.Command{ID: ulid.Make().String(), Process: id, Deadline: time.Now().Add(5 * time.Second), Body: command.Signal{Signal: 1}}
				within, cancel := context.WithDeadline(ctx, c.Deadline)
				_, err := gateway.Call(within, eventstest.Host, c)
				cancel()
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					stop()
					return
				}
				answered <- struct{}{}
			}
		})
	}
	for range 8 {
		for range 100 {
			select {
			case <-answered:
			case <-ctx.Done():
			}
		}
		srv.Restart()
	}
	stop()
	calls.Wait()
}

// appendUntil appends one event after the other until ctx ends, and returns how long each
// took.
func appendUntil(ctx context.Context, t *testing.T, w *record.Writer) (all []time.Duration) {
	for seq := process.Seq(1); ; seq++ {
		e := process.Event{Seq: seq, Time: time.Unix(1, 0), Body: process.Wrote{Stream: process.Stdout, Offset: seq, Data: []byte("x")}}
		if seq == 1 {
			e.Body = process.Accepted{}
		}
		began := time.Now()
		if err := w.Append(ctx, []process.Event{e}); err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return all
		}
		all = append(all, time.Since(began))
	}
}
