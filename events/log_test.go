package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

func TestAReaderGetsEachEventOnceInOrderFromAnyPosition(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ref := eventstest.NewRef()
	const n = 500
	eventstest.AppendAll(t, log.Writer(ref, 1), eventstest.Script(n), 7)
	other := eventstest.Open(t, srv) // another connection
	for after := process.Seq(0); after < n; after++ {
		if got := eventstest.ReadAll(t, other.Read(ref, after), after); len(got) != int(n-after) {
			t.Fatalf("after %d: got %d events, want %d", after, len(got), n-after)
		}
	}
}

func TestReadingPastTheEndOfAFinishedRecordIsInvalid(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref := eventstest.NewRef()
	eventstest.AppendAll(t, log.Writer(ref, 1), eventstest.Script(10), 3)
	r := log.Read(ref, 10)
	defer r.Close()
	if _, err := r.Next(t.Context(), 0); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want EOF", err)
	}
	for _, after := range []process.Seq{11, 1 << 63} {
		r := log.Read(ref, after)
		defer r.Close()
		if _, err := r.Next(t.Context(), 0); !kind.Is(err, kind.Invalid) {
			t.Errorf("after %d: %v, want Invalid", after, err)
		}
	}
}

func TestReadersAndAWriterSurviveServerRestarts(t *testing.T) {
	srv := eventstest.Start(t)
	log, other := eventstest.Open(t, srv), eventstest.Open(t, srv)
	ref := eventstest.NewRef()
	const n = 2000
	var wg sync.WaitGroup
	for i := range 4 {
		l := log
		if i%2 == 1 {
			l = other
		}
		r := l.Read(ref, 0)
		wg.Go(func() {
			if got := eventstest.ReadAll(t, r, 0); len(got) != n {
				t.Errorf("reader %d: got %d events, want %d", i, len(got), n)
			}
		})
	}
	all := eventstest.Script(n)
	w := log.Writer(ref, 1)
	for i := range 5 {
		part := all[i*n/5 : (i+1)*n/5]
		eventstest.AppendAll(t, w, part, 9)
		if i < 4 {
			srv.Restart()
		}
	}
	wg.Wait()
}

func TestASlowReaderReadsFromTheStore(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref := eventstest.NewRef()
	r := log.Read(ref, 0)
	w := log.Writer(ref, 1)
	now := time.Unix(1, 0)
	data := bytes.Repeat([]byte("x"), 100<<10)
	const n = 200 // 20 MB, far beyond a tail's memory, and 200 KB compressed
	for i := range n {
		e := process.Event{Seq: process.Seq(i + 1), Time: now}
		switch i {
		case 0:
			e.Body = process.Accepted{}
		case n - 1:
			e.Body = process.Finished{}
		default:
			e.Body = process.Wrote{Stream: process.Stdout, Offset: uint64((i - 1) * len(data)), Data: data}
		}
		if err := w.Append(t.Context(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			if _, err := r.Next(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := eventstest.ReadAll(t, r, r.After()); len(got) == 0 || got[len(got)-1].Seq != n {
		t.Fatalf("the record did not end")
	}
	late := log.Read(ref, 0)
	defer late.Close()
	for late.After() < n {
		got, err := late.Next(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > 40 {
			t.Errorf("%d events of 100 KiB in one batch, after %d", len(got), late.After())
		}
	}
}

func TestASecondClaimConflictsAndTheOlderWriterIsFenced(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref := eventstest.NewRef()
	all := eventstest.Script(6)
	first, second := log.Writer(ref, 1), log.Writer(ref, 2)
	if err := first.Append(t.Context(), all[:1]); err != nil {
		t.Fatal(err)
	}
	claim := []process.Event{{Seq: 1, Time: time.Unix(2, 0), Body: process.Accepted{Command: "c2"}}}
	if err := second.Append(t.Context(), claim); !kind.Is(err, kind.Conflict) {
		t.Errorf("second claim: %v, want Conflict", err)
	}
	if tail, err := second.Recover(t.Context()); err != nil || tail.Last != 1 || tail.Epoch != 1 {
		t.Fatalf("Recover = %+v, %v", tail, err)
	}
	if err := second.Append(t.Context(), all[1:3]); err != nil {
		t.Fatal(err)
	}
	if err := first.Append(t.Context(), all[1:3]); !kind.Is(err, kind.Fenced) {
		t.Errorf("append of the older run: %v, want Fenced", err)
	}
	if err := second.Append(t.Context(), all[3:]); err != nil {
		t.Fatal(err)
	}
	if got := eventstest.ReadAll(t, log.Read(ref, 0), 0); len(got) != len(all) {
		t.Errorf("got %d events, want %d", len(got), len(all))
	}
}

func TestCommandsAreDeliveredInOrderAndAnswered(t *testing.T) {
	srv := eventstest.Start(t)
	gateway, host := eventstest.Open(t, srv), eventstest.Open(t, srv)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := eventstest.NewRef().ID
	var seen []string
	served := make(chan error, 1)
	go func() {
		served <- host.Commands(ctx, eventstest.Host, 0, func(c command.Command) error {
			seen = append(seen, c.ID)
			in := c.Body.(command.Stdin)
			if string(in.Data) == "bad" {
				host.Reply(c, command.Reply{Err: kind.New(kind.NotFound, "stdin", "", "no such process")})
			} else {
				host.Reply(c, command.Reply{Offset: uint64(len(in.Data))})
			}
			return nil
		})
	}()
	for i, data := range []string{"a", "bad", "ccc"} {
		c := command.Command{ID: fmt.Sprint("c", i), Process: id, Body: command.Stdin{Data: []byte(data)}}
		r, err := gateway.Call(t.Context(), eventstest.Host, c)
		if data == "bad" {
			if !kind.Is(err, kind.NotFound) || kind.Message(err) != "no such process" {
				t.Errorf("reply to %q: %v", data, err)
			}
		} else if err != nil || r.Offset != uint64(len(data)) {
			t.Errorf("reply to %q: %+v, %v", data, r, err)
		}
	}
	if err := gateway.Send(t.Context(), eventstest.Host, command.Command{ID: "c2", Process: id, Body: command.Stdin{}}); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-served
	if got := fmt.Sprint(seen); got != "[c0 c1 c2]" {
		t.Errorf("seen %s: a repeated command must be stored once", got)
	}
}

func TestAViewFollowsSandboxesProcessesAndHosts(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	id := sandbox.NewID()
	ctx := t.Context()
	if _, err := view.CreateSandbox(ctx, "t", id, sandbox.Requested{Template: "base"}); err != nil {
		t.Fatal(err)
	}
	place := func(v *catalog.View, host string) error {
		_, err := v.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
			if s.Phase != sandbox.PhaseRequested {
				return nil, kind.New(kind.Conflict, "place", "", "placed")
			}
			return []sandbox.Body{sandbox.Placed{Host: host, Epoch: 1}}, nil
		})
		return err
	}
	other := eventstest.View(t, eventstest.Open(t, srv))
	errs := make(chan error, 2)
	go func() { errs <- place(view, "a") }()
	go func() { errs <- place(other, "b") }()
	if a, b := <-errs, <-errs; (a == nil) == (b == nil) {
		t.Errorf("two placements: %v, %v; want exactly one", a, b)
	}
	pid := process.NewID(id)
	sum := &process.Summary{ID: pid, Tenant: "t", Host: "a", PID: 7, Started: time.Unix(5, 0)}
	rev, err := log.PutSummary(ctx, sum, 0)
	if err != nil {
		t.Fatal(err)
	}
	sum.Killed = true
	if rev, err = log.PutSummary(ctx, sum, rev); err != nil {
		t.Fatal(err)
	}
	code := int32(0)
	sum.Exit = &process.Exit{Code: &code}
	if _, err = log.PutSummary(ctx, sum, rev); err != nil {
		t.Fatal(err)
	}
	if _, err = log.PutSummary(ctx, &process.Summary{ID: pid, Host: "a", PID: 9}, rev); !kind.Is(err, kind.Conflict) {
		t.Errorf("stale put: %v, want Conflict", err)
	}
	if err := other.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got, ok := other.ProcessByPID(id, 7); !ok || got.ID != pid || got.Outcome() != process.OutcomeKilled {
		t.Errorf("ProcessByPID = %+v, %v", got, ok)
	}
	if got := other.Counts(); got[process.OutcomeKilled] != 1 || got[process.OutcomeActive] != 0 || got[process.OutcomeOK] != 0 {
		t.Errorf("Counts = %v", got)
	}
	srv.Restart()
	third := eventstest.View(t, eventstest.Open(t, srv))
	if s, ok := third.Sandbox(id); !ok || s.Phase != sandbox.PhasePlaced {
		t.Errorf("after a restart: %+v, %v", s, ok)
	}
}

func TestASecretIsTheSameForAllCallers(t *testing.T) {
	srv := eventstest.Start(t)
	a, err := eventstest.Open(t, srv).Secret(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	b, err := eventstest.Open(t, srv).Secret(t.Context(), "x")
	if err != nil || !bytes.Equal(a, b) || len(a) != 32 {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
}

// The outcome of an abandoned append is unknown: it may be stored later, and the next
// append may carry more of the same events, or fewer.
func TestAnAbandonedAppendIsNotMistakenForAnotherWriter(t *testing.T) {
	for _, tt := range []struct {
		name       string
		lost, next int
		line       string
	}{
		{"more than before", 3, 6, ""},
		{"as many", 4, 4, ""},
		{"fewer", 6, 3, ""},
		{"more than before, compressed", 3, 6, strings.Repeat("line ", 500)},
		{"fewer, compressed", 6, 3, strings.Repeat("line ", 500)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := eventstest.Open(t, eventstest.Start(t))
			ref, all := eventstest.NewRef(), eventstest.Script(10)
			for i := range all {
				if w, ok := all[i].Body.(process.Wrote); ok {
					w.Data = append(w.Data, tt.line...)
					all[i].Body = w
				}
			}
			w, ghost := log.Writer(ref, 1), log.Writer(ref, 1)
			eventstest.AppendAll(t, w, all[:1], 1)
			if _, err := ghost.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := ghost.Append(t.Context(), all[1:1+tt.lost]); err != nil {
				t.Fatal(err)
			}
			if err := w.Append(t.Context(), all[1:1+tt.next]); err != nil {
				t.Fatal(err)
			}
			if want := process.Seq(1 + max(tt.lost, tt.next)); w.Last() != want {
				t.Errorf("last %d, want %d", w.Last(), want)
			}
			eventstest.AppendAll(t, w, all[w.Last():], 10)
			if got := eventstest.ReadAll(t, log.Read(ref, 0), 0); len(got) != len(all) {
				t.Errorf("%d events, want %d", len(got), len(all))
			}
		})
	}
}
