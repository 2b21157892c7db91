package screens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

const (
	maxSamples     = 4096 // of an index; beyond, two become one
	maxMarks       = 1000 // of an index; the end is marked in any case
	maxIndexes     = 128
	maxBuckets     = 2000
	defaultBuckets = 200
)

// mark is a moment of a timeline.
type mark struct {
	Seq  process.Seq `json:"seq,omitempty"`
	Time time.Time   `json:"time"`
	Kind string      `json:"kind"`
	Text string      `json:"text"`
}

// bucket is the output of a part of the time.
type bucket struct {
	Seq   process.Seq `json:"seq"` // its first event, or the last one before it
	Time  time.Time   `json:"time"`
	Bytes uint64      `json:"bytes"`
}

// timelineBody is a timeline in a response.
type timelineBody struct {
	First   process.Seq `json:"first"`
	Last    process.Seq `json:"last"`
	Start   time.Time   `json:"start"`
	End     *time.Time  `json:"end"`
	Buckets []bucket    `json:"buckets"`
	Marks   []mark      `json:"marks"`
	More    bool        `json:"more_marks,omitempty"` // signals and resizes were left out
}

// timeline responds with the timeline of a process.
func (h *Handler) timeline(c *fiber.Ctx) error {
	p, id, err := h.target(c)
	if err != nil {
		return err
	}
	n, err := number(c, "buckets", defaultBuckets, maxBuckets)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	body, err := h.indexes.timeline(ctx, p, id, n)
	if err != nil {
		return record.WriteError(c, err)
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(body)
}

// indexes holds the indexes of the records that were read last. Its methods may be called
// concurrently.
type indexes struct {
	records record.Records
	locks   keyed

	mu  sync.Mutex
	all map[view]*index
	use []view // the most recently used last
}

func newIndexes(r record.Records) *indexes {
	return &indexes{records: r, locks: newKeyed(), all: make(map[view]*index)}
}

// of returns the index of a process, and removes the one not used for the longest time.
func (x *indexes) of(id view) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.all[id]
	if i == nil {
		i = &index{step: 1}
		x.all[id] = i
	}
	x.use = append(slices.DeleteFunc(x.use, func(o view) bool { return o == id }), id)
	if len(x.use) > maxIndexes {
		delete(x.all, x.use[0])
		x.use = slices.Delete(x.use, 0, 1)
	}
	return i
}

// timeline returns the timeline of a process with n buckets.
func (x *indexes) timeline(ctx context.Context, p core.Principal, id process.ID, n int) (timelineBody, error) {
	sum, err := x.records.Process(ctx, p, id)
	if err != nil && !kind.Is(err, kind.NotFound) {
		return timelineBody{}, err
	}
	tip, tipErr := x.records.Tail(ctx, p, id)
	if kind.Is(tipErr, kind.NotFound) && err == nil {
		if !sum.Active() {
			return timelineBody{}, &record.RangeError{ID: id, Kind: kind.Gone}
		}
		return timelineBody{Start: sum.Started, Buckets: []bucket{}, Marks: []mark{}}, nil
	}
	if tipErr != nil {
		return timelineBody{}, tipErr
	}
	unlock, err := x.locks.lock(ctx, id)
	if err != nil {
		return timelineBody{}, busy(id)
	}
	defer unlock()
	i := x.of(view{id, p.Until})
	if err := x.advance(ctx, p, id, i, tip.Last); err != nil {
		if ctx.Err() != nil {
			return timelineBody{}, busy(id)
		}
		return timelineBody{}, err
	}
	return i.body(n), nil
}

func busy(id process.ID) error {
	return kind.New(kind.Unavailable, "read", string(id), "the record is long, and is still being read: try again")
}

func (x *indexes) advance(ctx context.Context, p core.Principal, id process.ID, i *index, last process.Seq) error {
	if i.last >= last {
		return nil
	}
	src, err := openAt(ctx, x.records, p, id, i.last)
	if err != nil {
		return err
	}
	defer src.Close()
	for i.last < last {
		batch, err := src.Next(ctx, 0)
		for j := range batch {
			i.add(&batch[j])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// index is what a timeline needs of a record, in bounded memory.
type index struct {
	first, last process.Seq
	start, at   time.Time // of the first and of the last event
	end         *time.Time
	samples     []sample
	step        uint64 // events in a sample
	marks       []mark
	more        bool
}

// sample is the output of a number of events.
type sample struct {
	seq    process.Seq // the first
	at     time.Time
	bytes  uint64
	events uint64
}

// add adds an event.
func (i *index) add(e *process.Event) {
	if i.first == 0 {
		i.first, i.start = e.Seq, e.Time
		if g, ok := e.Body.(process.Gap); ok {
			i.first = g.From
		}
	}
	i.last = e.Seq
	if e.Time.After(i.at) {
		i.at = e.Time
	}
	if w, ok := e.Body.(process.Wrote); ok {
		i.wrote(e, len(w.Data))
		return
	}
	if kind, text := markOf(e.Body); kind != "" {
		if _, over := e.Body.(process.Finished); over {
			at := e.Time.UTC()
			i.end = &at
		} else if len(i.marks) >= maxMarks {
			i.more = true
			return
		}
		i.marks = append(i.marks, mark{e.Seq, e.Time.UTC(), kind, text})
	}
}

func (i *index) wrote(e *process.Event, n int) {
	if k := len(i.samples); k > 0 && i.samples[k-1].events < i.step {
		s := &i.samples[k-1]
		s.bytes += uint64(n)
		s.events++
		return
	}
	if len(i.samples) == maxSamples {
		for k := range maxSamples / 2 {
			a, b := i.samples[2*k], i.samples[2*k+1]
			a.bytes += b.bytes
			a.events += b.events
			i.samples[k] = a
		}
		i.samples = i.samples[:maxSamples/2]
		i.step *= 2
	}
	i.samples = append(i.samples, sample{e.Seq, e.Time, uint64(n), 1})
}

// markOf returns the kind and the text of the mark for an event; "" is none.
func markOf(b process.Body) (kind, text string) {
	switch b := b.(type) {
	case process.Started:
		return "start", fmt.Sprintf("pid %d", b.PID)
	case process.Signaled:
		return "signal", fmt.Sprintf("signal %d", b.Signal)
	case process.Resized:
		return "resize", fmt.Sprintf("%dx%d", b.Size.Cols, b.Size.Rows)
	case process.Finished:
		return "exit", exitText(&b.Exit)
	case process.Gap:
		return "gap", b.Reason
	case process.Truncated:
		return "gap", fmt.Sprintf("%d bytes of output were dropped", b.Dropped)
	case process.Lost:
		return "lost", b.Reason
	case process.Failed:
		return "lost", b.Message
	case process.Omitted:
		return "gap", fmt.Sprintf("%d bytes of output were not kept", b.Bytes)
	case process.Accepted, process.Wrote, process.StdinAcked, process.Exited:
	}
	return "", ""
}

func exitText(x *process.Exit) string {
	switch {
	case x.Code != nil:
		return fmt.Sprintf("%s, code %d", x.Cause, *x.Code)
	case x.Signal != 0:
		return fmt.Sprintf("%s, signal %d", x.Cause, x.Signal)
	}
	return cmp.Or(string(x.Cause), "unknown")
}

// body returns the timeline with at most n buckets of equal duration.
func (i *index) body(n int) timelineBody {
	out := timelineBody{
		First: i.first, Last: i.last, Start: i.start.UTC(), End: i.end,
		Buckets: make([]bucket, 0, n), Marks: append([]mark{}, i.marks...), More: i.more,
	}
	width := max(i.at.Sub(i.start)/time.Duration(n)+1, 1)
	if width <= time.Millisecond && i.at.Equal(i.start) {
		n = 1
	}
	seq := i.first
	k := 0
	for b := range n {
		end := i.start.Add(width * time.Duration(b+1))
		one := bucket{Seq: seq, Time: i.start.Add(width * time.Duration(b)).UTC()}
		for first := true; k < len(i.samples) && (i.samples[k].at.Before(end) || b == n-1); k++ {
			if seq = i.samples[k].seq; first {
				one.Seq, first = seq, false
			}
			one.Bytes += i.samples[k].bytes
		}
		out.Buckets = append(out.Buckets, one)
	}
	return out
}
