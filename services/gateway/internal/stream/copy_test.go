package stream_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// words is an encoder of readable text.
type words struct {
	idle   time.Duration // returned by AppendIdle
	every  string        // appended by AppendIdle each time
	fails  process.Seq   // the event on which it fails
	panics process.Seq   // the event on which it panics
}

func (w *words) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	switch e.Seq {
	case w.fails:
		return dst, kind.New(kind.NotFound, "encode", "", "no word")
	case w.panics:
		panic("no word")
	}
	if out, ok := e.Body.(process.Wrote); ok {
		return append(dst, out.Data...), nil
	}
	return append(dst, "<"+e.Type()+">"...), nil
}

func (w *words) AppendIdle(dst []byte, silent time.Duration) ([]byte, time.Duration) {
	if silent > 0 {
		dst = append(dst, w.every...)
	}
	return dst, w.idle
}

func (w *words) AppendEnd(dst []byte, err error) []byte {
	if err != nil {
		return append(dst, "["+kind.Of(err).String()+"]"...)
	}
	return append(dst, "[end]"...)
}

func script(bodies ...process.Body) *surfacetest.Record {
	return surfacetest.NewRecord("script", process.Spec{Cmd: "x"}, bodies...)
}

func TestCopyFlushesOnceABatchAndEndsInTheLastFlush(t *testing.T) {
	r := script(surfacetest.Out("a"), surfacetest.Out("b"), surfacetest.Code(0))
	for _, tt := range []struct {
		name    string
		batch   int
		flushes int
	}{
		{"all available", 0, 1}, {"two at a time", 2, 3}, {"one by one", 1, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sink, src := &surfacetest.Sink{}, r.Source(0)
			src.Batch = tt.batch
			if err := stream.Copy(t.Context(), sink, src, &words{}); err != nil {
				t.Fatal(err)
			}
			if got, want := string(sink.Raw), "<accepted><start>ab<end>[end]"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if sink.Flushes != tt.flushes || sink.Ended != 1 {
				t.Errorf("%d flushes and %d ends, want %d and 1", sink.Flushes, sink.Ended, tt.flushes)
			}
		})
	}
}

func TestCopyFlushesALongBatchEarly(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	r := script(surfacetest.Out(big), surfacetest.Out(big), surfacetest.Out(big), surfacetest.Code(0))
	sink := &surfacetest.Sink{}
	if err := stream.Copy(t.Context(), sink, r.Source(0), &words{}); err != nil {
		t.Fatal(err)
	}
	if sink.Flushes != 2 {
		t.Errorf("600 KiB left in %d flushes, want 2", sink.Flushes)
	}
}

func TestCopyEndsWithTheProtocolsError(t *testing.T) {
	r := script(surfacetest.Out("a"), surfacetest.Code(0))
	canceled := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	for _, tt := range []struct {
		name string
		ctx  context.Context
		enc  words
		want string
		ok   bool
	}{
		{"an event that the encoder rejects", t.Context(), words{fails: 3}, "<accepted><start>[not found]", true},
		{"a drain", canceled(surfacetest.Drained()), words{}, "[unavailable]", true},
		{"the request's timeout", canceled(kind.New(kind.Deadline, "", "", "")), words{}, "[deadline]", true},
		{"a disconnected client", canceled(kind.New(kind.Canceled, "", "", "")), words{}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sink := &surfacetest.Sink{}
			err := stream.Copy(tt.ctx, sink, r.Source(0), &tt.enc)
			if got := string(sink.Raw); got != tt.want || (err == nil) != tt.ok {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestCopySendsTheHeadToAClientThatWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		src := script(surfacetest.Code(0)).Source(0)
		src.Hold, src.Wake = 1, wake
		var flushed []time.Duration
		begin := time.Now()
		sink := &surfacetest.Sink{Before: func() { flushed = append(flushed, time.Since(begin)) }}
		src.Nexts = func() {
			if time.Since(begin) > time.Hour {
				close(wake)
				src.Nexts = nil
			}
		}
		silent := quiet{words{idle: 2 * time.Hour}}
		if err := stream.Copy(t.Context(), sink, src, &silent); err != nil {
			t.Fatal(err)
		}
		if len(flushed) == 0 || flushed[0] > 50*time.Millisecond {
			t.Errorf("flushed after %v, want the first at once", flushed)
		}
	})
}

// quiet appends nothing for the first event.
type quiet struct{ words }

func (q *quiet) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	if e.Seq == 1 {
		return dst, nil
	}
	return q.words.AppendEvent(dst, e)
}

func TestCopyCallsAppendIdleAsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := script(surfacetest.Code(0)).Source(0)
		src.Hold = 2
		ctx, cancel := context.WithTimeoutCause(t.Context(), 101*time.Second, surfacetest.Drained())
		defer cancel()
		sink := &surfacetest.Sink{}
		if err := stream.Copy(ctx, sink, src, &words{idle: 10 * time.Second, every: "."}); err != nil {
			t.Fatal(err)
		}
		if got, want := string(sink.Raw), "<accepted><start>..........[unavailable]"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// broken is a Writer whose client is gone after some flushes.
type broken struct{ left int }

func (b *broken) Flush([]byte) error {
	if b.left--; b.left < 0 {
		return io.ErrClosedPipe
	}
	return nil
}

func (b *broken) End(buf []byte) error { return b.Flush(buf) }

func TestCopyStopsWhenTheClientIsGone(t *testing.T) {
	for n := range 5 {
		t.Run("after "+strconv.Itoa(n)+" flushes", func(t *testing.T) {
			src := script(surfacetest.Out("a"), surfacetest.Out("b"), surfacetest.Code(0)).Source(0)
			src.Batch = 1
			if err := stream.Copy(t.Context(), &broken{n}, src, &words{}); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
			}
			if got := src.After(); got > process.Seq(n+1) {
				t.Errorf("continued to event %d without a client", got)
			}
		})
	}
}
