package eventstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

// Host is the host of NewRef.
const Host = "h1"

// NewRef returns the record of a new process.
func NewRef() record.Ref {
	return record.Ref{Host: Host, ID: process.NewID(sandbox.NewID())}
}

// Script returns the n events of a whole record: accepted, started, output, end.
func Script(n int) []process.Event {
	now := time.Unix(1, 0)
	out := make([]process.Event, 0, n)
	add := func(b process.Body) {
		out = append(out, process.Event{Seq: process.Seq(len(out) + 1), Time: now, Body: b})
	}
	add(process.Accepted{Spec: process.Spec{Cmd: "seq"}, Command: "c1", SpecHash: []byte{1}, Tenant: "t"})
	add(process.Started{PID: 42})
	var offset uint64
	for len(out) < n-2 {
		line := fmt.Appendf(nil, "line %d\n", len(out))
		add(process.Wrote{Stream: process.Stdout, Offset: offset, Data: line})
		offset += uint64(len(line))
	}
	code := int32(0)
	exit := process.Exit{Code: &code, Cause: process.CauseExited}
	add(process.Exited{Exit: exit})
	add(process.Finished{Exit: exit})
	return out
}

// AppendAll writes a record in messages of at most step events.
func AppendAll(t testing.TB, w *record.Writer, all []process.Event, step int) {
	t.Helper()
	for len(all) > 0 {
		n := min(step, len(all))
		if err := w.Append(t.Context(), all[:n]); err != nil {
			t.Errorf("append from %d: %v", all[0].Seq, err)
			return
		}
		all = all[n:]
	}
}

// ReadAll reads to the end and checks that each event comes once, in order.
func ReadAll(t testing.TB, r *record.Reader, after process.Seq) []process.Event {
	t.Helper()
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var out []process.Event
	for {
		batch, err := r.Next(ctx, 0)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Errorf("after %d: %v", r.After(), err)
			return out
		}
		for _, e := range batch {
			if after++; e.Seq != after {
				t.Errorf("got event %d, want %d", e.Seq, after)
				return out
			}
			out = append(out, e)
		}
	}
}

// Stream returns a stream, bypassing the log.
func Stream(t testing.TB, srv *Server, name string) jetstream.Stream {
	t.Helper()
	s, err := JetStream(t, srv).Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Noise returns incompressible bytes, the same for the same seed.
func Noise(seed, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}
