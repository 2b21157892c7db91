package screens

import (
	"context"
	"errors"
	"io"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// Limits of a text.
const (
	defaultText = 64 << 10
	maxText     = 1 << 20
	firstWindow = 256  // number of events that are read first
	maxWindow   = 4096 // number of events that a request reads at most in one pass
)

// part is the output of an event, or what the record has in its place.
type part struct {
	Seq  process.Seq `json:"seq"`
	Type string      `json:"type"` // stdout, stderr, pty, or the kind of a mark
	Text string      `json:"text"`
}

// textBody is a text in a response.
type textBody struct {
	Seq     process.Seq `json:"seq"`
	Last    process.Seq `json:"last"`
	Ended   bool        `json:"ended"`
	Earlier process.Seq `json:"earlier"` // the event at which the text before this one ends; 0: there is none
	Parts   []part      `json:"parts"`
}

// text responds with the end of a process's output up to an event.
func (h *Handler) text(c *fiber.Ctx) error {
	p, id, err := h.target(c)
	if err != nil {
		return err
	}
	at, err := seq(c, "seq")
	if err != nil {
		return err
	}
	size, err := number(c, "bytes", defaultText, maxText)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	body, err := readText(ctx, h.cfg.Records, p, id, at, size)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = busy(id)
	}
	if err != nil {
		return record.WriteError(c, err)
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(body)
}

// readText returns the last size bytes of the output up to event at; 0 is the last event stored. It does
// not read what is long before that: it reads a number of events, and four times as many if they have too
// little output.
func readText(ctx context.Context, r record.Records, p core.Principal, id process.ID, at process.Seq, size int) (textBody, error) {
	_, tip, err := summaryAndTail(ctx, r, p, id, at)
	if err != nil {
		return textBody{}, err
	}
	out := textBody{Seq: at, Last: tip.Last, Ended: tip.Finished != nil, Parts: []part{}}
	if tip.Last == 0 {
		return out, nil
	}
	if at == 0 {
		out.Seq = tip.Last
	}
	for events := process.Seq(firstWindow); ; events *= 4 {
		w := window{after: out.Seq - min(out.Seq, events), size: size}
		if err := w.read(ctx, r, p, id, out.Seq); err != nil {
			return textBody{}, err
		}
		if w.dropped || w.first || events >= maxWindow {
			out.Earlier, out.Parts = w.earlier(), append(out.Parts, w.parts...)
			return out, nil
		}
	}
}

// window is the end of the output of some events.
type window struct {
	after   process.Seq // the event before the first one read
	size    int         // maximum number of bytes, unless one event has more
	have    int
	parts   []part
	partial [process.PTY + 1][]byte // the beginning of a character, of each stream
	dropped bool                    // output was dropped to keep the size
	first   bool                    // there is no event before those read
}

// read reads the events up to seq, and the one before them, which shows whether there is one.
func (w *window) read(ctx context.Context, r record.Records, p core.Principal, id process.ID, seq process.Seq) error {
	w.first = w.after == 0
	src, err := openAt(ctx, r, p, id, w.after-min(w.after, 1))
	if err != nil {
		return err
	}
	defer src.Close()
	for at := process.Seq(0); at < seq; {
		batch, err := src.Next(ctx, 0)
		for i := range batch {
			e := &batch[i]
			if e.Seq > seq {
				return nil
			}
			if _, gap := e.Body.(process.Gap); at == 0 && (gap || e.Seq > w.after) {
				w.first = true
			}
			if at = e.Seq; at > w.after {
				w.add(e)
			}
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

// add adds an event.
func (w *window) add(e *process.Event) {
	switch b := e.Body.(type) {
	case process.Wrote:
		data := b.Data
		if int(b.Stream) < len(w.partial) {
			data = append(w.partial[b.Stream], data...)
			whole := len(data) - partial(data)
			w.partial[b.Stream] = append([]byte(nil), data[whole:]...)
			data = data[:whole]
		}
		w.append(part{e.Seq, b.Stream.String(), string(data)})
	case process.Signaled, process.Gap, process.Truncated, process.Omitted, process.Lost, process.Failed:
		kind, text := markOf(b)
		w.append(part{e.Seq, kind, text})
	case process.Accepted, process.Started, process.StdinAcked, process.Resized, process.Exited, process.Finished:
	}
}

// append appends a part, and drops the oldest ones beyond the size.
func (w *window) append(p part) {
	w.parts = append(w.parts, p)
	w.have += len(p.Text)
	for w.have > w.size && len(w.parts) > 1 {
		w.have -= len(w.parts[0].Text)
		w.parts = w.parts[1:]
		w.dropped = true
	}
}

// earlier returns the event at which the text before this one ends.
func (w *window) earlier() process.Seq {
	switch {
	case w.dropped:
		return w.parts[0].Seq - 1
	case w.first:
		return 0
	}
	return w.after
}
