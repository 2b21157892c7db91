package durable

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

const (
	// maxChunk is the size at which a response ends: the client requests the rest.
	maxChunk = 1 << 20
	// pollSlice is the interval at which a long-poll checks for a drain.
	pollSlice = 500 * time.Millisecond
)

// collector builds the body of a response from events.
type collector interface {
	// add adds events and reports whether the body is full.
	add(batch []process.Event) (full bool, err error)
	// some reports whether the body has content.
	some() bool
}

// messages collects a JSON array of events.
type messages struct {
	body []byte
	end  process.Seq
	n    int
}

func (m *messages) add(batch []process.Event) (bool, error) {
	for i := range batch {
		if len(m.body) >= maxChunk {
			return true, nil
		}
		sep := byte(',')
		if m.n++; m.n == 1 {
			sep = '['
		}
		m.body = textenc.AppendEvent(append(m.body, sep), &batch[i])
		m.end = batch[i].Seq
	}
	return len(m.body) >= maxChunk, nil
}

func (m *messages) some() bool { return m.n > 0 }

func (m *messages) bytes() []byte {
	if m.n == 0 {
		return []byte("[]")
	}
	return append(m.body, ']')
}

// progress is how far a read has come.
type progress struct {
	at     process.Seq // the last event read, unless the chunk was full before
	full   bool
	closed bool // the record's end was reached
}

// stored collects the stored events.
func stored(ctx context.Context, o *record.Opened, g collector) (p progress, err error) {
	p = progress{at: o.After, closed: o.AtEnd()}
	for !p.full {
		batch, err := o.Source.Next(ctx, 0)
		if end := errors.Is(err, io.EOF); err != nil && !end {
			return p, err
		} else if err := p.take(g, batch); err != nil || end {
			return p, err
		}
	}
	return p, nil
}

func (p *progress) take(g collector, batch []process.Event) (err error) {
	p.full, err = g.add(batch)
	if n := len(batch); n > 0 && !p.full {
		p.at = batch[n-1].Seq
		_, p.closed = batch[n-1].Body.(process.Finished)
	}
	return err
}

// awaited collects the events that are stored or arrive first, for at most h.poll.
func (h *Handler) awaited(ctx context.Context, o *record.Opened, g collector) (p progress, err error) {
	p = progress{at: o.After, closed: o.AtEnd()}
	for until := time.Now().Add(h.poll); !p.full && !p.closed && !g.some() && !h.streams.Draining(); {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		batch, err := o.Source.Next(ctx, min(left, pollSlice))
		if errors.Is(err, io.EOF) {
			p.closed = true
		} else if err != nil {
			return p, err
		}
		if err := p.take(g, batch); err != nil {
			return p, err
		}
	}
	return p, nil
}

// messages responds with events.
func (h *Handler) messages(ctx context.Context, c *fiber.Ctx, a response, o *record.Opened, live bool) error {
	m := &messages{end: o.After}
	var p progress
	var err error
	if live {
		p, err = h.awaited(ctx, o, m)
	} else {
		p, err = stored(ctx, o, m)
	}
	if err != nil {
		return err
	}
	a.ctype, a.from, a.next = fiber.MIMEApplicationJSON, offset(o.After), offset(m.end)
	a.closed, a.upTo = p.closed, !p.full && m.end >= o.Tail.Last
	if a.nothing = live && !m.some(); !a.nothing {
		a.body = m.bytes()
	}
	return a.send(c)
}
