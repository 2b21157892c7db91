package connect

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// encoder encodes one record as a stream of events (stream.Encoder).
type encoder struct {
	wire       wire
	id         process.ID
	byLine     bool // split at line ends
	neverFlush bool // a partial line waits for its end
	keepalive  time.Duration
	pid        uint32 // may be known before the record has it; 0: unknown

	started  bool // the start event was sent
	resumed  bool // the record is read from its middle: the start event is due at once
	seq      process.Seq
	cursor   cursor // after the last event sent
	partials [2]partialLine
	budget   *stream.Budget // memory of the partial lines
	lost     string         // why the exit was not observed
	missing  string         // which output is missing, for the end event's error
	damaged  bool           // output was lost: the stream fails after its end event

	now  time.Time // time of this batch; zero: not read yet
	sent bool      // something was appended since AppendIdle
	last time.Time // when something was last sent
}

// open starts at a position of the record of a process with pid.
func (e *encoder) open(pid uint32, want *replayFrom) {
	e.pid, e.seq, e.cursor, e.resumed = pid, want.seq, want.cursor, want.seq > 0
	for i := range e.partials {
		e.partials[i].sent = want.sent[i]
	}
}

// clock returns the time, which is read once per batch.
func (e *encoder) clock() time.Time {
	if e.now.IsZero() {
		e.now = time.Now()
	}
	return e.now
}

// AppendEvent appends the encoding of ev, which is empty for many events.
func (e *encoder) AppendEvent(dst []byte, ev process.Event) ([]byte, error) {
	was := len(dst)
	e.seq = ev.Seq
	dst, err := e.event(dst, &ev)
	e.sent = e.sent || len(dst) > was
	return dst, err
}

func (e *encoder) event(dst []byte, ev *process.Event) ([]byte, error) {
	switch b := ev.Body.(type) {
	case process.Wrote:
		return e.wrote(dst, &b), nil
	case process.Started:
		e.pid = b.PID
		return e.start(dst), nil
	case process.Truncated:
		dst = e.start(dst)
		e.missing = "part of the output was dropped"
		n := e.meta(true)
		n.dropped = &b
		return e.wire.keepalive(dst, &n), nil
	case process.Omitted:
		dst = e.start(dst)
		n := e.meta(true)
		n.omitted = &b
		return e.wire.keepalive(dst, &n), nil
	case process.Gap:
		return e.gap(dst, &b), nil
	case process.Lost:
		e.lost = b.Reason
	case process.Failed:
		return dst, kind.New(kind.Kind(b.Kind), "start", string(e.id), b.Message)
	case process.Finished:
		return e.finished(dst, ev.Seq, &b.Exit)
	case process.Accepted, process.StdinAcked, process.Resized, process.Signaled, process.Exited:
	}
	return dst, nil
}

// start appends the start event once the pid is known.
func (e *encoder) start(dst []byte) []byte {
	if e.started || e.pid == 0 {
		return dst
	}
	e.started = true
	n := meta{cursor: e.cursor, seq: max(e.seq, e.cursor.seq), process: e.id}
	return e.wire.start(dst, e.pid, &n)
}

func (e *encoder) wrote(dst []byte, w *process.Wrote) []byte {
	data := e.trim(w)
	if len(data) == 0 {
		return dst
	}
	dst = e.start(dst)
	if e.byLine && w.Stream != process.PTY {
		return e.lines(dst, w.Stream, data)
	}
	if w.Stream == process.PTY {
		n := e.meta(true)
		return e.wire.data(dst, w.Stream, nil, data, &n)
	}
	return e.emit(dst, w.Stream, data, true)
}

// retention is the reason of a gap before the first retained frame.
const retention = "retention has passed"

// gap appends a keepalive with the gap. Events that were lost, as opposed to expired,
// make the stream fail after its end event.
func (e *encoder) gap(dst []byte, g *process.Gap) []byte {
	e.seq = g.To
	dst = e.start(e.flushPartial(dst, 0))
	e.missing = "its first output passed out of retention"
	if g.Reason != retention {
		e.missing = fmt.Sprintf("events %d to %d of the record cannot be read: %s", g.From, g.To, g.Reason)
		e.damaged = true
	}
	n := e.meta(true)
	n.missing = g
	return e.wire.keepalive(dst, &n)
}

// finished appends the partial lines and the end event. A client that received the
// former without the latter must resume to get the end.
func (e *encoder) finished(dst []byte, seq process.Seq, x *process.Exit) ([]byte, error) {
	e.seq = seq - 1
	dst = e.flushPartial(dst, 0)
	e.seq = seq
	end, err := endingOf(x, e.lost)
	if err != nil {
		return dst, err
	}
	dst = e.start(dst)
	if e.missing != "" {
		if end.err != "" {
			end.err += "; "
		}
		end.err += e.missing
	}
	n := e.meta(true)
	return e.wire.end(dst, &end, &n), nil
}

// AppendIdle appends partial lines that have waited long enough, and keepalives.
func (e *encoder) AppendIdle(dst []byte, silent time.Duration) ([]byte, time.Duration) {
	was := len(dst)
	e.budget.Shrink(e.buffered())
	if silent > 0 {
		e.now = time.Time{}
	}
	now := e.clock()
	if e.resumed {
		dst = e.start(dst)
	}
	if !e.neverFlush {
		dst = e.flushPartial(dst, partialAfter)
	}
	if e.sent || len(dst) > was || e.last.IsZero() {
		e.last, e.sent = now, false
	} else if now.Sub(e.last) >= e.keepalive {
		// Not before start, which must be the first event. A client that waits
		// for a process to start has the response head.
		if e.started {
			dst = e.wire.keepalive(dst, nil)
		}
		e.last = now
	}
	wait := e.keepalive - now.Sub(e.last)
	if due := e.partialDue(); due > 0 {
		wait = min(wait, due)
	} else if e.oversized() {
		if silent < partialAfter {
			wait = min(wait, partialAfter-silent)
		} else {
			e.shrink()
		}
	}
	e.now = time.Time{}
	return dst, wait
}

// oversized reports whether empty partial lines have large buffers.
func (e *encoder) oversized() bool {
	return cap(e.partials[0].buf) > maxIdlePartial || cap(e.partials[1].buf) > maxIdlePartial
}

func (e *encoder) shrink() {
	for i := range e.partials {
		if h := &e.partials[i]; len(h.buf) == 0 && cap(h.buf) > maxIdlePartial {
			h.buf = nil
		}
	}
}

// AppendEnd appends the last envelope.
func (e *encoder) AppendEnd(dst []byte, err error) []byte {
	reconnects := kind.Is(err, kind.Unavailable)
	if !reconnects || !e.neverFlush {
		dst = e.flushPartial(dst, 0)
	}
	if err == nil && e.damaged {
		err = fail(CodeDataLoss, "%s", e.missing)
	}
	if err == nil {
		return appendEnd(dst, nil, "")
	}
	return appendEnd(dst, err, e.next(reconnects))
}

// next returns the cursor from which a reconnecting client resumes.
func (e *encoder) next(reconnects bool) string {
	if !reconnects {
		return ""
	}
	at := e.meta(true).cursor
	return string(at.append(nil))
}
