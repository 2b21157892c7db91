package processes

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/output"
)

// screen writes the events of one process. It is not safe for concurrent use.
type screen struct {
	out, err *output.Writer
	json     bool   // write events as NDJSON
	history  uint64 // last event that is history
	limit    time.Duration
	failure  string // error of a process that did not start
	end      client.Event
}

// newScreen returns a screen for a process and looks up where its history ends. answered
// reports whether the local terminal's answers are forwarded to the process. If not, they
// would reach the next reader of the local terminal, such as a shell, so all output
// counts as history.
func (a *app) newScreen(ctx context.Context, c *client.Client, id string, at *attachment, answered bool) (*screen, error) {
	s := &screen{out: output.New(a.Out), err: output.New(a.Err), json: at.json}
	switch {
	case !s.out.Terminal && !s.err.Terminal:
	case at.tty && !answered:
		s.history = math.MaxUint64
	case at.existing:
		var err error
		if s.history, err = lastEvent(ctx, c, id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// lastEvent returns the seq of a record's current last event.
func lastEvent(ctx context.Context, c *client.Client, id string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, client.CallTimeout)
	defer cancel()
	resp, err := c.Open(ctx, &client.Request{Method: "GET", Path: client.ProcessPath(id, "/events?after=now&follow=0")})
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	last, err := strconv.ParseUint(resp.Header.Get("X-Record-After"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the gateway did not send the record's last event: %w", err)
	}
	return last, nil
}

// show writes one event to the stream it belongs to.
func (s *screen) show(e *client.Event, feed *client.Feeder, report func(string, ...any)) error {
	if s.json {
		if err := s.out.Show(e.Line, true); err != nil {
			return err
		}
	}
	switch e.Type {
	case "accepted":
		s.limit = time.Duration(e.TimeoutMS) * time.Millisecond
	case "stdout", "pty", "stderr":
		return s.output(e)
	case "stdin_ack":
		feed.Ack(e)
	case "gap":
		report("events %d to %d cannot be read: %s", e.From, e.To, e.Reason)
	case "truncated":
		report("%d bytes of %s were dropped", e.Dropped, e.Stream)
	case "omitted":
		report("%d bytes of %s were not kept", e.Omitted, e.Stream)
	case "error":
		report("%s", e.Message)
		s.failure = e.Message
	case "lost":
		report("lost: %s", e.Reason)
	case "end":
		s.end = *e
		if e.Cause == notStarted {
			s.end.Message = s.failure // already printed
		} else if why := endReason(e, s.limit); why != "" && e.ExitCode != nil { // otherwise exitOf returns it
			report("%s", why)
		}
	}
	return nil
}

// output writes the bytes of an output event, unless the event was written as JSON.
func (s *screen) output(e *client.Event) error {
	switch {
	case s.json:
		return nil
	case e.Type == "stderr":
		return s.err.Show(e.Bytes(), e.Seq <= s.history)
	}
	return s.out.Show(e.Bytes(), e.Seq <= s.history)
}

// notStarted is the cause of the end of a process that never ran; the error event before
// it has the reason.
const notStarted = "not_started"

// endReason returns why a process ended; empty if it exited by itself or by a signal from a
// client. limit is its time limit, 0 if unknown.
func endReason(e *client.Event, limit time.Duration) string {
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
	if s.out.Terminal {
		s.out.Send([]byte(screenDefaults)) //nolint:errcheck // the terminal may be gone
	}
}

// screenDefaults resets the alternate screen, mouse, focus, paste and size reports, key
// modes, styles and the character set, and shows the cursor.
const screenDefaults = "\x1b[?1047l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l" +
	"\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b[?1l\x1b>\x1b[<8u\x1b[>4m\x1b[?7h\x1b[?25h\x1b[0m\x1b(B\x0f\r\n"
