package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/natsd"
)

// combining is a connection whose appends to one stream are held back until they form a batch.
type combining struct {
	t      *testing.T
	l      *Conn
	c      *combiner
	stream string
}

func newCombining(t *testing.T, l *Conn) *combining {
	t.Helper()
	x := &combining{t: t, l: l, stream: streams.Out(0)}
	x.c = l.combiners.of(l, x.stream)
	if _, err := l.Append(t.Context(), x.stream, subjectOf("first"), 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	return x
}

func subjectOf(name string) string { return "out.00.h.s." + name }

// outcome is the result of an append.
type outcome struct {
	seq uint64
	err error
}

// together appends a message to each of n records, so that they wait for each other. last has the
// stream sequences of their last messages. before runs when all wait.
func (x *combining) together(round string, last []uint64, before func()) []outcome {
	x.t.Helper()
	x.c.mu.Lock()
	x.c.inFlight++
	x.c.mu.Unlock()
	out := make([]outcome, len(last))
	var wg sync.WaitGroup
	for i := range last {
		wg.Go(func() {
			seq, err := x.l.Append(x.t.Context(), x.stream, subjectOf(fmt.Sprint("p", i)), last[i], []byte(round))
			out[i] = outcome{seq, err}
		})
	}
	for waiting := 0; waiting < len(last); runtime.Gosched() {
		x.c.mu.Lock()
		waiting = len(x.c.waiting)
		x.c.mu.Unlock()
	}
	before()
	x.c.mu.Lock()
	x.c.leave(0)
	x.c.mu.Unlock()
	wg.Wait()
	return out
}

// check checks that record i ends in a message of the round at the reported position, or that the
// append was rejected because it was stored before, as a writer then finds.
func (x *combining) check(i int, round string, got outcome) uint64 {
	x.t.Helper()
	m, ok, err := x.l.LastOf(x.t.Context(), x.stream, subjectOf(fmt.Sprint("p", i)))
	switch {
	case err != nil || !ok:
		x.t.Fatalf("record %d: %v, %v", i, ok, err)
	case !bytes.Equal(m.Data, []byte(round)):
		x.t.Errorf("record %d ends in %q, want %q", i, m.Data, round)
	case got.err == nil && got.seq != m.Seq:
		x.t.Errorf("record %d ends at %d, reported %d", i, m.Seq, got.seq)
	case got.err != nil && !errors.Is(got.err, ErrExpectation):
		x.t.Errorf("record %d: %v", i, got.err)
	}
	return m.Seq
}

func (x *combining) failed() bool {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	return x.c.pause > 0
}

// messages returns the number of messages in the stream.
func (x *combining) messages() uint64 {
	x.t.Helper()
	last, err := x.l.LastSeq(x.t.Context(), x.stream)
	if err != nil {
		x.t.Fatal(err)
	}
	return last
}

func TestABatchStoresEachMessage(t *testing.T) {
	x := newCombining(t, openConn(t))
	last := make([]uint64, 2*maxBatch)
	for r := range 3 {
		round := fmt.Sprint("round ", r)
		for i, got := range x.together(round, last, func() {}) {
			if last[i] = x.check(i, round, got); got.err != nil {
				t.Errorf("record %d: %v", i, got.err)
			}
		}
	}
	if want := uint64(1 + 3*len(last)); x.failed() || x.messages() != want {
		t.Errorf("failed: %v; %d messages, want %d", x.failed(), x.messages(), want)
	}
	// The condition of each is stored.
	got, err := x.l.GetFrom(t.Context(), x.stream, subjectOf("p7"), 1, 10)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	for i, after := 0, uint64(0); i < len(got); i++ {
		if got[i].After != after {
			t.Errorf("message %d: after %d, want %d", i, got[i].After, after)
		}
		after = got[i].Seq
	}
}

func TestAMessageThatIsRejectedDoesNotAffectTheOthersOfItsBatch(t *testing.T) {
	for _, wrong := range []int{0, 3, 9} {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			x := newCombining(t, openConn(t))
			last := make([]uint64, 10)
			last[wrong] = 77
			for i, got := range x.together("a", last, func() {}) {
				if i != wrong {
					x.check(i, "a", got)
				} else if !errors.Is(got.err, ErrExpectation) {
					t.Errorf("the wrong one: %v", got.err)
				}
			}
			if !x.failed() || x.messages() != 10 {
				t.Errorf("failed: %v; %d messages, want 10", x.failed(), x.messages())
			}
		})
	}
}

// Then it is unknown which message has which position.
func TestABatchAmongMessagesOfAnotherHost(t *testing.T) {
	l := openConn(t)
	x := newCombining(t, l)
	got := x.together("a", make([]uint64, 10), func() {
		if _, err := l.PublishPlain(t.Context(), subjectOf("other"), []byte("x")); err != nil {
			t.Error(err)
		}
	})
	last := make([]uint64, len(got))
	for i := range got {
		last[i] = x.check(i, "a", got[i])
	}
	if !x.failed() || x.messages() != 12 {
		t.Errorf("failed: %v; %d messages, want 12", x.failed(), x.messages())
	}
	x.c.end = 1 << 40 // as of a stream that was lost since
	for range 2 {
		x.c.pause, x.c.resume = 0, time.Time{} // the pause is over
		for i, g := range x.together("b", last, func() {}) {
			last[i] = x.check(i, "b", g)
		}
		if _, err := x.l.Append(t.Context(), x.stream, subjectOf("first"), 1, []byte("x")); err != nil && !errors.Is(err, ErrExpectation) {
			t.Error(err)
		}
	}
	if x.failed() {
		t.Error("there are no batches any more")
	}
}

func TestAServerThatStopsWithABatchInFlight(t *testing.T) {
	dir := t.TempDir()
	run := func() *natsd.Server {
		srv, err := natsd.Start(natsd.Config{Dir: dir, MaxStore: 4 << 30, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		return srv
	}
	srv := &replaced{srv: run()}
	defer func() { srv.get().Stop() }()
	l, err := Open(t.Context(), Config{
		InProcess: srv, Replicas: 1, Shards: 1, Retention: time.Hour, MaxOutput: 1 << 30, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	x := newCombining(t, l)
	last := make([]uint64, 20)
	for r := range 3 {
		round := fmt.Sprint("round ", r)
		stopped := make(chan struct{})
		got := x.together(round, last, func() {
			go func() {
				defer close(stopped)
				srv.get().Stop()
			}()
			if r == 0 {
				<-stopped // in the first round before the batch, then during it
			}
		})
		<-stopped
		srv.set(run())
		for i := range got {
			for try := 0; kind.Is(got[i].err, kind.Unavailable) && l.Backoff(t.Context(), &try); {
				got[i].seq, got[i].err = l.Append(t.Context(), x.stream, subjectOf(fmt.Sprint("p", i)), last[i], []byte(round))
			}
			last[i] = x.check(i, round, got[i])
		}
		x.c.mu.Lock()
		x.c.pause, x.c.resume = 0, time.Time{} // the next round is a batch again
		x.c.mu.Unlock()
	}
	if want := uint64(1 + 3*len(last)); x.messages() != want {
		t.Errorf("%d messages, want %d", x.messages(), want)
	}
}

func TestAWaitingMessageEndsWithItsContext(t *testing.T) {
	x := newCombining(t, openConn(t))
	x.c.mu.Lock()
	x.c.inFlight++
	x.c.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.l.Append(ctx, x.stream, subjectOf("p"), 0, []byte("x")); !kind.Is(err, kind.Unavailable) {
		t.Errorf("got %v", err)
	}
	if n := x.messages(); n != 1 || len(x.c.waiting) != 0 {
		t.Errorf("%d messages, %d waiting", n, len(x.c.waiting))
	}
}

// A large message does not wait, and takes along what waits.
func TestALargeMessageIsPublishedAtOnce(t *testing.T) {
	x := newCombining(t, openConn(t))
	got := x.together("a", make([]uint64, 5), func() {
		if _, err := x.l.Append(t.Context(), x.stream, subjectOf("large"), 0, make([]byte, largeMessage+1)); err != nil {
			t.Error(err)
		}
	})
	for i := range got {
		if x.check(i, "a", got[i]); got[i].err != nil {
			t.Errorf("record %d: %v", i, got[i].err)
		}
	}
	if x.failed() || x.c.large != 0 || x.c.inFlight != 0 {
		t.Errorf("failed: %v; %d large, %d in flight", x.failed(), x.c.large, x.c.inFlight)
	}
}

// replaced is a server that is restarted.
type replaced struct {
	mu  sync.Mutex
	srv *natsd.Server
}

func (r *replaced) get() *natsd.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.srv
}

func (r *replaced) set(srv *natsd.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.srv = srv
}

func (r *replaced) InProcessConn() (net.Conn, error) { return r.get().InProcessConn() }
