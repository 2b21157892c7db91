package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

func (a *app) attachCommand() *cobra.Command {
	var noStdin bool
	var after uint64
	c := &cobra.Command{
		Use:   "attach PROCESS",
		Short: "Replay a process's output and attach to it",
		Long: `Attach to a process: replay its output from the beginning (or after an event),
follow it live, and forward your input. At a terminal, Ctrl-P Ctrl-Q detaches: the
process keeps running, and the exit status is 0. Closing the terminal (SIGHUP)
detaches too.

Terminal queries, such as for the cursor position, are removed from the replayed
output, so that your terminal's answers do not become input.`,
		Args: command.MillraceArgs(command.IDArgs(cobra.ExactArgs(1))),

		ValidArgsFunction: a.CompleteArgs(command.ProcessIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return output.MillraceError(err)
			}
			var p client.Process
			if err := command.ByID(cmd.Context(), c, command.ProcessIDs(), args[0], func(id string) (err error) {
				p, err = c.Process(cmd.Context(), id)
				return err
			}); err != nil {
				return output.MillraceError(err)
			}
			at := attachment{tty: p.PTY != nil, stdin: !noStdin && p.State != client.StateEnded, after: after, existing: true, json: asJSON}
			err = a.attach(cmd.Context(), c, p.ID, at)
			if errors.Is(err, output.ErrDetached) {
				a.noteDetached(p.ID)
				return nil
			}
			return output.MillraceError(err)
		},
	}
	c.SetFlagErrorFunc(command.MillraceFlags)
	c.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "do not forward standard input")
	c.Flags().Uint64Var(&after, "after", 0, "sequence number of the event to start after (default the first event)")
	return c
}

// attachment holds the options of an attach.
type attachment struct {
	tty      bool
	stdin    bool
	json     bool // write events instead of output
	after    uint64
	existing bool           // the process existed before: its output so far is history
	size     client.Winsize // last known size of the process's terminal
}

// noteDetached prints the command that attaches again.
func (a *app) noteDetached(id string) {
	a.Notef("detached; the process keeps running. Attach again: millrace attach %s", id)
}

// attach streams a process to the CLI's own standard streams and returns its exit. It
// returns output.ErrDetached if the process was left running.
func (a *app) attach(ctx context.Context, c *client.Client, id string, at attachment) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// SIGPIPE would end the CLI before it has cleaned up; the write's error is enough.
	signal.Ignore(unix.SIGPIPE)
	k, err := a.keyboard(&at)
	if err != nil {
		return err
	}
	report := a.Notef
	if k != nil {
		defer k.restore()
		report = func(format string, args ...any) { a.Notef(format+"\r", args...) }
	}
	s, err := a.newScreen(ctx, c, id, &at, k != nil)
	if err != nil {
		return err
	}
	feed, input := client.NewFeeder(c, id), a.In
	leave := func(why error) {
		ignoreHangup(why)
		cancel(why)
	}
	if k != nil {
		k.resizes(ctx, c, id, at.size, report)
		input = k.detacher(func() { leave(output.ErrDetached) })
	}
	go forwardSignals(ctx, leave, c, id, k != nil || at.existing, report)
	if at.stdin {
		go func() {
			if err := feed.Feed(ctx, input, at.atEOF()); err != nil && ctx.Err() == nil {
				report("input: %v", err)
			}
		}()
	}
	err = c.Follow(ctx, id, at.after, report, func(e *client.Event) error { return s.show(e, feed, report) })
	ignoreHangup(err)
	switch {
	case errors.Is(err, output.ErrDetached) && k != nil:
		s.leave()
		return err
	case err != nil:
		return err
	}
	return exitOf(&s.end)
}

// ignoreHangup lets a detached client finish: the SIGHUP of a closed terminal may arrive
// after the end of its input, when signals are no longer forwarded.
func ignoreHangup(why error) {
	if errors.Is(why, output.ErrDetached) {
		signal.Ignore(unix.SIGHUP)
	}
}

// atEOF returns what the end of the local input does to the process. A terminal has no
// end: a process that this client started receives the end-of-file character, and an
// existing one receives nothing.
func (at *attachment) atEOF() client.InputEnd {
	switch {
	case at.tty && at.existing:
		return client.EndNothing
	case at.tty:
		return client.EndCharacter
	}
	return client.EndClose
}

// exitOf returns the CLI's exit for a process's end. The error of a process that did not
// start was printed before and is not repeated.
func exitOf(end *client.Event) error {
	switch {
	case end.Signal != 0:
		return &output.ExitError{Code: output.ExitSignal + end.Signal}
	case end.ExitCode == nil && end.Cause == notStarted && end.Message != "":
		return &output.ExitError{Code: output.ExitMillrace}
	case end.ExitCode == nil && end.Message != "":
		return &output.ExitError{Code: output.ExitMillrace, Err: fmt.Errorf("exit status unknown (%s): %s", end.Cause, end.Message)}
	case end.ExitCode == nil:
		return &output.ExitError{Code: output.ExitMillrace, Err: fmt.Errorf("exit status unknown (%s)", end.Cause)}
	case *end.ExitCode == 0:
		return nil
	}
	return &output.ExitError{Code: *end.ExitCode & 0xff}
}

// forceQuit is the number of interrupts that end the CLI rather than the process.
const forceQuit = 3

// forwardSignals forwards the CLI's signals to the process. The third Ctrl-C ends the
// CLI instead, and SIGHUP detaches if detaches is set.
func forwardSignals(ctx context.Context, leave func(error), c *client.Client, id string, detaches bool, report func(string, ...any)) {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	if !signal.Ignored(unix.SIGHUP) { // nohup ignores it
		signal.Notify(ch, unix.SIGHUP)
	}
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
			if sig == unix.SIGHUP && detaches {
				leave(output.ErrDetached)
				return
			}
			if sig == unix.SIGINT {
				if interrupts++; interrupts == forceQuit {
					leave(&output.ExitError{Code: output.ExitSignal + int(sig), Err: fmt.Errorf("interrupted; process %s may keep running", id)})
					return
				}
			}
			go func() {
				if err := c.Signal(ctx, id, int(sig)); err != nil && ctx.Err() == nil {
					report("signal %v: %v", sig, err)
				}
			}()
		}
	}
}
