package link

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	maxID     = 256             // bytes of a command's id in an event, of which a process may have any number
	maxAhead  = 2 * time.Minute // of a shim's clock relative to hostd's
	maxSignal = 64
)

// Track checks the events of one process, each against those before it.
type Track struct {
	PTY    bool        // it has a terminal
	Last   process.Seq // seq of the last accepted event
	State  process.State
	Flight int // cost of the accepted events that are not stored yet

	offsets [4]uint64 // per stream
	known   [4]bool   // offsets is valid: a new epoch of hostd takes it from the first event
}

// NewTrack returns a Track of a process whose record ends with Accepted.
func NewTrack(pty bool) *Track {
	return &Track{PTY: pty, Last: 1, State: process.StateAccepted, known: [4]bool{true, true, true, true}}
}

// Resume makes t continue after last, for a new epoch of hostd, which does not have the
// earlier events.
func (t *Track) Resume(last process.Seq) {
	*t = Track{PTY: t.PTY, Last: last, State: process.StateAccepted}
	if last > 1 {
		t.State = process.StateRunning
	} else {
		t.known = [4]bool{true, true, true, true}
	}
}

// Cost returns what an event counts for Flight, the same as in its shim, of any
// version. Its other text is bounded by Take.
func Cost(e *process.Event) int {
	if w, ok := e.Body.(process.Wrote); ok {
		return wire.EventCost + len(w.Data)
	}
	return wire.EventCost
}

// Weight returns the memory that a pending event counts: Cost, and the text besides output,
// which its shim does not count.
func Weight(e *process.Event) int {
	switch b := e.Body.(type) {
	case process.StdinAcked:
		return Cost(e) + len(b.Command)
	case process.Signaled:
		return Cost(e) + len(b.Command)
	case process.Failed:
		return Cost(e) + len(b.Message)
	case process.Exited:
		return Cost(e) + len(b.Exit.Message)
	case process.Finished:
		return Cost(e) + len(b.Exit.Message)
	case process.Wrote, process.Started, process.Resized, process.Truncated, process.Accepted, process.Omitted, process.Lost, process.Gap:
	}
	return Cost(e)
}

// Take accepts e as the next event, or returns the reason to reject it. It corrects an
// impossible time.
func (t *Track) Take(e *process.Event) error {
	if e.Seq != t.Last+1 {
		return fmt.Errorf("%w: seq %d after %d", ErrHostile, e.Seq, t.Last)
	}
	if t.Flight >= wire.WindowProcess {
		return fmt.Errorf("%w: output beyond its window", ErrHostile)
	}
	if err := t.checkBody(e.Body); err != nil {
		return err
	}
	next, err := t.State.Apply(*e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHostile, err)
	}
	if now := time.Now(); e.Time.Before(time.Unix(1, 0)) || e.Time.After(now.Add(maxAhead)) {
		e.Time = now
	}
	t.Last, t.State = e.Seq, next
	t.Flight += Cost(e)
	return nil
}

func (t *Track) checkBody(b process.Body) error {
	var ok bool
	switch b := b.(type) {
	case process.Started:
		ok = b.PID != 0
	case process.Wrote:
		return t.checkOutput(&b)
	case process.StdinAcked:
		ok = validID(b.Command)
	case process.Signaled:
		ok = validID(b.Command) && b.Signal > 0 && b.Signal <= maxSignal
	case process.Resized:
		ok = t.PTY
	case process.Truncated:
		ok = t.hasStream(b.Stream)
	case process.Exited:
		ok = validExit(&b.Exit)
	case process.Finished:
		ok = validExit(&b.Exit)
	case process.Failed:
		ok = validText(b.Message) && b.Kind <= uint32(kind.Precondition)
	default: // shims may not send Accepted, Lost and Gap; nil is an unknown kind
		ok = false
	}
	if !ok {
		return fmt.Errorf("%w: event %T %+v", ErrHostile, b, b)
	}
	return nil
}

func (t *Track) checkOutput(w *process.Wrote) error {
	if !t.hasStream(w.Stream) {
		return fmt.Errorf("%w: output on %s", ErrHostile, w.Stream)
	}
	if want := t.offsets[w.Stream]; t.known[w.Stream] && w.Offset != want {
		return fmt.Errorf("%w: offset %d on %s, want %d", ErrHostile, w.Offset, w.Stream, want)
	}
	t.offsets[w.Stream], t.known[w.Stream] = w.Offset+uint64(len(w.Data)), true
	return nil
}

func (t *Track) hasStream(s process.Stream) bool {
	if t.PTY {
		return s == process.PTY
	}
	return s == process.Stdout || s == process.Stderr
}

func validID(s string) bool { return len(s) <= maxID && utf8.ValidString(s) }

func validText(s string) bool { return len(s) <= wire.MaxText && utf8.ValidString(s) }

// validExit reports whether a shim may send such an exit.
func validExit(x *process.Exit) bool {
	if !validText(x.Message) || x.Signal < 0 || x.Signal > maxSignal {
		return false
	}
	if x.Code != nil && (*x.Code < 0 || *x.Code > 255 || x.Signal != 0) {
		return false
	}
	switch x.Cause {
	case process.CauseExited:
		return x.Code != nil
	case process.CauseSignaled, process.CauseKilled, process.CauseTimeout, process.CauseOOM, process.CauseSandboxGone:
		return x.Signal != 0
	case process.CauseNotStarted:
		return !x.Seen()
	}
	return false
}
