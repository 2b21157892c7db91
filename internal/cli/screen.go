package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/internal/vtfilter"
)

// output is a descriptor for recorded output. If it is a terminal, queries are removed
// from history.
type output struct {
	w        io.Writer
	terminal bool
	filter   vtfilter.Filter
	buf      []byte
}

func newOutput(w io.Writer) *output {
	f, ok := w.(*os.File)
	return &output{w: w, terminal: ok && isTerminal(f)}
}

// write writes p, which is history or live.
func (o *output) write(p []byte, history bool) error { return o.send(o.clean(p, history)) }

// clean returns p without terminal queries. The result is valid until the next call.
func (o *output) clean(p []byte, history bool) []byte {
	switch {
	case !o.terminal:
		return p
	case history:
		o.buf = o.filter.Replay(o.buf[:0], p)
	default:
		o.buf = o.filter.Live(o.buf[:0], p)
	}
	return o.buf
}

// send writes bytes unchanged.
func (o *output) send(p []byte) error {
	_, err := o.w.Write(p)
	switch {
	case errors.Is(err, unix.EPIPE) || errors.Is(err, io.ErrClosedPipe):
		// The reader closed the pipe, as `head` does: end as a local command would.
		return errNoReader
	case o.terminal && errors.Is(err, unix.EIO):
		return errDetached // the terminal closed; SIGHUP follows
	}
	return err
}

// Write writes p as history.
func (o *output) Write(p []byte) (int, error) {
	if err := o.write(p, true); err != nil {
		return 0, err
	}
	return len(p), nil
}

// screen writes the events of one process. It is not safe for concurrent use.
type screen struct {
	out, err *output
	json     bool   // write events as NDJSON
	history  uint64 // last event that is history
	limit    time.Duration
	failure  string // error of a process that did not start
	end      event
}

// newScreen returns a screen for a process and looks up where its history ends. answered
// reports whether the local terminal's answers are forwarded to the process. If not, they
// would reach the next reader of the local terminal, such as a shell, so all output
// counts as history.
func (a *app) newScreen(ctx context.Context, c *client, id string, at *attachment, answered bool) (*screen, error) {
	s := &screen{out: newOutput(a.Out), err: newOutput(a.Err), json: at.json}
	switch {
	case !s.out.terminal && !s.err.terminal:
	case at.tty && !answered:
		s.history = math.MaxUint64
	case at.existing:
		var err error
		if s.history, err = c.lastEvent(ctx, id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// lastEvent returns the seq of a record's current last event.
func (c *client) lastEvent(ctx context.Context, id string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.open(ctx, &request{method: "GET", path: processPath(id, "/events?after=now&follow=0")})
	if err != nil {
		return 0, err
	}
	resp.Body.Close() //nolint:errcheck // only the header is needed
	last, err := strconv.ParseUint(resp.Header.Get("X-Record-After"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the gateway did not send the record's last event: %w", err)
	}
	return last, nil
}

// errNoReader is the CLI's exit after the reader of its output closed the pipe.
var errNoReader = &ExitError{Code: exitSignal + int(unix.SIGPIPE)}

// show writes one event to the stream it belongs to.
func (s *screen) show(e *event, feed *feeder, report func(string, ...any)) error {
	if s.json {
		if err := s.out.write(e.line, true); err != nil {
			return err
		}
	}
	switch e.Type {
	case "accepted":
		s.limit = time.Duration(e.TimeoutMS) * time.Millisecond
	case "stdout", "pty", "stderr":
		return s.output(e)
	case "stdin_ack":
		feed.ack(e)
	case "gap":
		report("events %d to %d cannot be read: %s", e.From, e.To, e.Reason)
	case "truncated":
		report("%d bytes of %s were dropped", e.Dropped, e.Stream)
	case "error":
		report("%s", e.Message)
		s.failure = e.Message
	case "lost":
		report("lost: %s", e.Reason)
	case "end":
		s.end = *e
		if e.Cause == notStarted {
			s.end.Message = s.failure // already printed
		} else if why := e.why(s.limit); why != "" && e.ExitCode != nil { // otherwise exitOf returns it
			report("%s", why)
		}
	}
	return nil
}

// output writes the bytes of an output event, unless the event was written as JSON.
func (s *screen) output(e *event) error {
	switch {
	case s.json:
		return nil
	case e.Type == "stderr":
		return s.err.write(e.bytes(), e.Seq <= s.history)
	}
	return s.out.write(e.bytes(), e.Seq <= s.history)
}

// notStarted is the cause of the end of a process that never ran; the error event before
// it has the reason.
const notStarted = "not_started"

// why returns why a process ended; empty if it exited by itself or by a signal from a
// client. limit is its time limit, 0 if unknown.
func (e *event) why(limit time.Duration) string {
	why := ""
	switch e.Cause {
	case "timeout":
		if why = "the process was killed at its time limit"; limit > 0 {
			why += fmt.Sprintf(" of %v", limit)
		}
	case "oom":
		why = "the process was killed because the sandbox used up its memory"
	case "sandbox_gone":
		why = "the process was killed because its sandbox ended"
	}
	switch {
	case e.Message == "":
		return why
	case why == "":
		return "the process ended: " + e.Message
	}
	return why + ": " + e.Message
}

// leave resets terminal modes that the process may have set. Left on, they would make the
// terminal send input to the local shell that the user did not type.
func (s *screen) leave() {
	if s.out.terminal {
		io.WriteString(s.out.w, screenDefaults) //nolint:errcheck // the terminal may be gone
	}
}

// screenDefaults resets the alternate screen, mouse, focus, paste and size reports, key
// modes, styles and the character set, and shows the cursor.
const screenDefaults = "\x1b[?1047l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l" +
	"\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b[?1l\x1b>\x1b[<8u\x1b[>4m\x1b[?7h\x1b[?25h\x1b[0m\x1b(B\x0f\r\n"
