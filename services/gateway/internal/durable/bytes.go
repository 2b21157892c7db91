package durable

import (
	"context"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// mark is a position in the bytes of one stream of output: the number of bytes before it,
// and the event with the last of them, which makes a search unnecessary.
type mark struct {
	bytes uint64
	seq   process.Seq
}

func (m mark) String() string { return fmt.Sprintf("%020d_%020d", m.bytes, m.seq) }

// parseMark parses one of our offsets, "-1", or a number of bytes, which is searched for
// from the beginning of the record.
func parseMark(s string) (mark, error) {
	if s == "" || s == "-1" {
		return mark{}, nil
	}
	var m mark
	n, seq, both := strings.Cut(s, "_")
	var err error
	if m.bytes, err = record.ParseSeq(n); err == nil && both {
		m.seq, err = record.ParseSeq(seq)
	}
	return m, err
}

// output collects the bytes of one stream.
type output struct {
	stream process.Stream
	at     mark
	body   []byte
	last   uint64 // size of the stream as far as it was read
	gap    bool   // events are missing since the last bytes
}

// missingBytes returns the error for a stream whose bytes from at up to next are missing; next 0:
// all the rest.
func missingBytes(at, next uint64) error {
	if next == 0 {
		return kind.Newf(kind.Gone, "read", "", "output was lost: bytes from %d on may be missing; the record as JSON lists the missing events", at)
	}
	return kind.Newf(kind.Gone, "read", "", "output was lost: bytes %d to %d are missing; continue with offset=%d", at, next-1, next)
}

// add collects events until there is enough. Missing bytes are an error even after other
// bytes: a response that ends at a gap would look complete.
func (o *output) add(batch []process.Event) (bool, error) {
	for i := range batch {
		switch b := batch[i].Body.(type) {
		case process.Wrote:
			full, err := o.wrote(batch[i].Seq, &b)
			if full || err != nil {
				return full, err
			}
		case process.Omitted:
			if end := b.Offset + b.Bytes; b.Stream == o.stream && end > o.at.bytes {
				return false, missingBytes(o.at.bytes, end)
			}
		case process.Gap:
			o.gap = true // the offset of the next bytes shows whether any are missing
		case process.Finished:
			if o.gap {
				return false, missingBytes(o.at.bytes, 0)
			}
		case process.Accepted, process.Started, process.StdinAcked, process.Resized, process.Signaled,
			process.Truncated, process.Exited, process.Lost, process.Failed:
		}
	}
	return len(o.body) >= maxChunk, nil
}

func (o *output) wrote(seq process.Seq, w *process.Wrote) (full bool, err error) {
	if w.Stream != o.stream {
		return false, nil
	}
	end := w.Offset + uint64(len(w.Data))
	o.last = end
	switch {
	case end <= o.at.bytes:
		return false, nil // the client has it
	case len(o.body) >= maxChunk:
		return true, nil
	case w.Offset > o.at.bytes:
		return false, missingBytes(o.at.bytes, w.Offset)
	}
	o.gap = false
	o.body = append(o.body, w.Data[o.at.bytes-w.Offset:]...)
	o.at = mark{end, seq}
	return false, nil
}

func (o *output) some() bool { return len(o.body) > 0 }

// streamNamed returns the stream of output with that name.
func streamNamed(name string) (process.Stream, error) {
	for _, s := range []process.Stream{process.Stdout, process.Stderr, process.PTY} {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, kind.New(kind.NotFound, "read", "", "unknown stream: must be stdout, stderr or pty")
}

// bytes responds with the bytes of one stream of output.
func (h *Handler) bytes(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	s, err := streamNamed(c.Params("stream"))
	if err != nil {
		return err
	}
	live, err := liveOf(c)
	if err != nil {
		return err
	}
	if live == liveSSE {
		return kind.New(kind.Invalid, "read", string(id), "SSE cannot carry bytes: use live=long-poll")
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	now := c.Query("offset") == "now"
	var at mark
	if now {
		at, err = h.end(ctx, auth.From(c), id, s)
	} else {
		at, err = parseMark(c.Query("offset"))
	}
	if err != nil {
		return record.WriteError(c, err)
	}
	o, err := record.Open(ctx, h.core, auth.From(c), id, record.Options{Position: record.Position{After: at.seq}, Follow: live != ""})
	if err != nil {
		return record.WriteError(c, err)
	}
	defer o.Source.Close()
	out := &output{stream: s, at: at}
	var p progress
	if live != "" {
		p, err = h.awaited(ctx, &o, out)
	} else {
		p, err = stored(ctx, &o, out)
	}
	if err != nil {
		return err
	}
	if at.seq == 0 && at.bytes > out.last && !p.full && o.Tail.Stale {
		return kind.New(kind.Unavailable, "read", string(id), "the size of the stream is unknown right now: try again")
	}
	if at.seq == 0 && at.bytes > out.last && !p.full {
		return kind.Newf(kind.Invalid, "read", string(id), "offset out of range: the stream has %d bytes", out.last)
	}
	setCommon(c)
	a := newResponse(c, id, now)
	a.view, a.ctype, a.body, a.from, a.next = s.String(), fiber.MIMEOctetStream, out.body, at.String(), out.at.String()
	a.closed, a.upTo = p.closed, !p.full && p.at >= o.Tail.Last
	a.nothing = live != "" && !out.some()
	return a.send(c)
}

// end returns the end of a stream's bytes, from its last output event. It searches
// backwards in growing steps.
func (h *Handler) end(ctx context.Context, p core.Principal, id process.ID, s process.Stream) (mark, error) {
	tip, err := h.core.Tail(ctx, p, id)
	if err != nil {
		return mark{}, err
	}
	for back := process.Seq(256); ; back *= 8 {
		after := tip.Last - min(tip.Last, back)
		m, err := h.lastOf(ctx, p, id, s, after)
		if err != nil || m.seq > 0 || after == 0 {
			return m, err
		}
	}
}

func (h *Handler) lastOf(ctx context.Context, p core.Principal, id process.ID, s process.Stream, after process.Seq) (mark, error) {
	o, err := record.Open(ctx, h.core, p, id, record.Options{Position: record.Position{After: after}})
	if err != nil {
		return mark{}, err
	}
	defer o.Source.Close()
	last := &lastMark{stream: s}
	_, err = stored(ctx, &o, last)
	return last.at, err
}

// lastMark collects only the end of a stream's bytes.
type lastMark struct {
	stream process.Stream
	at     mark
}

func (l *lastMark) add(batch []process.Event) (bool, error) {
	for i := range batch {
		if w, ok := batch[i].Body.(process.Wrote); ok && w.Stream == l.stream {
			l.at = mark{w.Offset + uint64(len(w.Data)), batch[i].Seq}
		}
	}
	return false, nil
}

func (l *lastMark) some() bool { return false }

// bytesHead responds with the offset of a stream's end.
func (h *Handler) bytesHead(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	s, err := streamNamed(c.Params("stream"))
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	at, err := h.end(ctx, auth.From(c), id, s)
	if err != nil {
		return record.WriteError(c, err)
	}
	tip, err := h.core.Tail(ctx, auth.From(c), id)
	if err != nil {
		return err
	}
	return sendHead(c, fiber.MIMEOctetStream, at.String(), tip.Finished != nil)
}
