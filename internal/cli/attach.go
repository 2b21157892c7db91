package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func (a *app) attachCommand() *cobra.Command {
	var noStdin bool
	var after uint64
	c := &cobra.Command{
		Use:   "attach PROCESS",
		Short: "Join a process: its whole record, then live, with input",
		Long: `Join a process: its output from the beginning (or after an event), then as it
comes, and your input to it. At a terminal, Ctrl-P Ctrl-Q leaves it running.`,
		Args: oursArgs(ids(cobra.ExactArgs(1))),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return ours(err)
			}
			p, err := c.process(cmd.Context(), args[0])
			if err != nil {
				return ours(err)
			}
			at := attachment{tty: p.PTY != nil, stdin: !noStdin && p.State != "ended", after: after}
			return ours(a.attach(cmd.Context(), c, p.ID, at))
		},
	}
	c.SetFlagErrorFunc(oursFlags)
	c.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "do not forward input")
	c.Flags().Uint64Var(&after, "after", 0, "begin after this event; 0: at the first")
	return c
}

// attachment says how to join a process.
type attachment struct {
	tty   bool
	stdin bool
	after uint64
}

// attach streams a process to our own descriptors and gives its exit.
func (a *app) attach(ctx context.Context, c *client, id string, at attachment) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The signal would end us before we have cleaned up; the write's error is enough.
	signal.Ignore(unix.SIGPIPE)
	say, input := a.notef, a.In
	if in, ok := a.In.(*os.File); ok && at.tty && isTerminal(in) {
		restore, err := raw(in)
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		defer restore()
		say = func(format string, args ...any) { a.notef(format+"\r", args...) }
		input = &detacher{in: in, leave: func() { cancel(&ExitError{}) }}
		go resizes(ctx, in, func(s winsize) {
			c.resize(ctx, id, s) //nolint:errcheck // the next one will do
		})
	}
	go forwardSignals(ctx, cancel, c, id, say)
	feed := newFeeder(c, id)
	if at.stdin {
		go func() {
			if err := feed.feed(ctx, input, false); err != nil {
				say("input: %v", err)
			}
		}()
	}
	var end event
	err := c.follow(ctx, id, at.after, say, func(e *event) error { return a.show(e, feed, &end, say) })
	if err != nil {
		return err
	}
	return exitOf(&end)
}

// show writes one event to where it belongs.
func (a *app) show(e *event, feed *feeder, end *event, say func(string, ...any)) error {
	var err error
	switch e.Type {
	case "stdout", "pty":
		_, err = a.Out.Write(e.bytes())
	case "stderr":
		_, err = a.Err.Write(e.bytes())
	case "stdin_ack":
		feed.ack(e)
	case "gap":
		say("events %d to %d cannot be read: %s", e.From, e.To, e.Reason)
	case "truncated":
		say("%d bytes of %s were dropped", e.Dropped, e.Stream)
	case "error":
		say("%s", e.Message)
		end.Message = e.Message
	case "lost":
		say("lost: %s", e.Reason)
	case "end":
		e.Message = end.Message
		*end = *e
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		// Our reader left, as `head` does: end as a local command would.
		return errNoReader
	}
	return err
}

// errNoReader is our exit after our reader left.
var errNoReader = &ExitError{Code: exitSignal + int(unix.SIGPIPE)}

// exitOf is our exit after a process's. Where nothing began, what was said of that
// is all there is to say.
func exitOf(end *event) error {
	switch {
	case end.Signal != 0:
		return &ExitError{Code: exitSignal + end.Signal}
	case end.ExitCode == nil && end.Cause == "not_started" && end.Message != "":
		return &ExitError{Code: ExitOurs}
	case end.ExitCode == nil:
		return &ExitError{Code: ExitOurs, Err: fmt.Errorf("nobody saw the process end (%s)", end.Cause)}
	case *end.ExitCode == 0:
		return nil
	}
	return &ExitError{Code: *end.ExitCode & 0xff}
}

// impatient is how many interrupts end us rather than the process.
const impatient = 3

// forwardSignals sends the signals that we get to the process. Whoever presses
// Ctrl-C three times wants out.
func forwardSignals(ctx context.Context, leave context.CancelCauseFunc, c *client, id string, say func(string, ...any)) {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(ch)
	interrupts := 0
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-ch:
			sig, ok := s.(unix.Signal)
			if !ok {
				continue
			}
			if sig == unix.SIGINT {
				if interrupts++; interrupts == impatient {
					leave(&ExitError{Code: exitSignal + int(sig), Err: errors.New("interrupted; the process may go on")})
					return
				}
			}
			go func() {
				if err := c.signal(ctx, id, int(sig)); err != nil && ctx.Err() == nil {
					say("signal %v: %v", sig, err)
				}
			}()
		}
	}
}

// detacher is a terminal's input, out of which Ctrl-P Ctrl-Q leads.
type detacher struct {
	in    io.Reader
	leave func()
	half  bool // Ctrl-P was pressed, and is held back
}

const (
	ctrlP = 0x10
	ctrlQ = 0x11
)

// Read gives the keys pressed; a Ctrl-P waits for the next one.
func (d *detacher) Read(p []byte) (int, error) {
	for {
		n, err := d.in.Read(p[:len(p)-1]) // one byte more may be given back
		out := make([]byte, 0, n+1)
		for _, b := range p[:n] {
			switch {
			case d.half && b == ctrlQ:
				d.leave()
				return 0, context.Canceled
			case d.half:
				out = append(out, ctrlP)
			}
			if d.half = b == ctrlP; !d.half {
				out = append(out, b)
			}
		}
		if len(out) > 0 || err != nil {
			return copy(p, out), err
		}
	}
}
