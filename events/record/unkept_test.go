package record_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

// Readers that are attached, here on two connections, get output that is not stored, in the order of
// the record. Later ones get what stands for it.
func TestOutputThatIsNotStoredReachesThoseAttached(t *testing.T) {
	srv := eventstest.Start(t)
	host, near, far := eventstest.Open(t, srv), eventstest.Open(t, srv), eventstest.Open(t, srv)
	ref := record.Ref{Host: "h1", ID: process.NewID(sandbox.NewID())}
	readers := []*record.Reader{near.ReadNew(ref), far.Read(ref, 0)}
	w := host.Writer(ref, 1)
	output := func(seq process.Seq, offset uint64, text string) process.Event {
		return process.Event{Seq: seq, Time: time.Unix(9, 0), Body: process.Wrote{Stream: process.Stdout, Offset: offset, Data: []byte(text)}}
	}
	code := int32(0)
	batches := [][]process.Event{
		{{Seq: 1, Body: process.Accepted{}}, {Seq: 2, Body: process.Started{PID: 1}}},
		{output(3, 0, "one"), output(4, 3, "two")},
		{output(5, 6, "three"), {Seq: 6, Body: process.Finished{Exit: process.Exit{Code: &code}}}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, r := range readers { // both are attached before anything is written
		defer r.Close()
		if got, err := r.Next(ctx, time.Millisecond); err != nil || len(got) > 0 {
			t.Fatalf("reader %d: %v, %v", i, got, err)
		}
	}
	for _, evs := range batches {
		w.PublishLive(evs)
		w.PublishLive(evs) // as after a failed append
		if err := w.Append(ctx, process.WithoutOutput(evs)); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range readers {
		text, omitted := readAll(ctx, t, r)
		if text != "onetwothree" || omitted != 0 {
			t.Errorf("reader %d: %q and %d bytes that are not kept", i, text, omitted)
		}
	}
	late := eventstest.Open(t, srv).Read(ref, 0)
	defer late.Close()
	if text, omitted := readAll(ctx, t, late); text != "" || omitted != 11 {
		t.Errorf("a later reader: %q and %d bytes that are not kept", text, omitted)
	}
}

// readAll returns the output of a record whose seqs must be dense, and how much of it is not kept.
func readAll(ctx context.Context, t *testing.T, r *record.Reader) (text string, omitted uint64) {
	t.Helper()
	for seq := process.Seq(0); ; {
		evs, err := r.Next(ctx, 0)
		if errors.Is(err, io.EOF) {
			return text, omitted
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evs {
			if seq++; e.Seq != seq {
				t.Fatalf("seq %d, want %d", e.Seq, seq)
			}
			switch b := e.Body.(type) {
			case process.Wrote:
				text += string(b.Data)
			case process.Omitted:
				omitted += b.Bytes
			default:
			}
		}
	}
}
