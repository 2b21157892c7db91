package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// logsFlags holds the flags of logs.
type logsFlags struct {
	follow, json, stamps bool
	since                string
	after                uint64
}

func (a *app) logsCommand() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "logs [PROCESS]",
		Short: "Print the recorded output of a process",
		Long: `Print the recorded output of a process, each stream to the stream of the same name.
Output is kept for the retention period, also after the process, sandbox and host
have ended. PROCESS defaults to the process that started last.`,
		Args: command.IDArgs(cobra.MaximumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.ProcessIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			return a.logs(cmd.Context(), &f, id)
		},
	}
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "follow the output until the process ends")
	c.Flags().StringVar(&f.since, "since", "", "start time, as RFC 3339 or as an age such as 10m (default the first event)")
	c.Flags().Uint64Var(&f.after, "after", 0, "sequence number of the event to start after (default the first event)")
	c.Flags().BoolVar(&f.json, "json", false, "print events as NDJSON")
	c.Flags().BoolVarP(&f.stamps, "timestamps", "t", false, "print a timestamp before each line")
	return c
}

func (a *app) logs(ctx context.Context, f *logsFlags, id string) error {
	since, err := parseSince(f.since, time.Now())
	if err != nil {
		return err
	}
	c, asJSON, err := a.Open()
	if err != nil {
		return err
	}
	asJSON = asJSON || f.json
	if id == "" {
		last, err := c.Latest(ctx)
		if err != nil {
			return err
		}
		id = last.ID
		a.Notef("logs of process %s (%s)", id, last.CommandLine())
	}
	w := logWriter{a: a, out: a.newLogOutput(a.Out, f.stamps), err: a.newLogOutput(a.Err, f.stamps), json: asJSON}
	show := func(e *client.Event) error {
		if e.Time.Before(since) && e.Type != "end" {
			return nil
		}
		return w.event(e)
	}
	return command.ByID(ctx, c, command.ProcessIDs(), id, func(id string) error { return a.writeLogs(ctx, c, f, id, show) })
}

// writeLogs calls show for the events of a record that f selects.
func (a *app) writeLogs(ctx context.Context, c *client.Client, f *logsFlags, id string, show func(*client.Event) error) error {
	if err := a.skipGone(ctx, c, f, id); err != nil {
		return err
	}
	if f.follow {
		return c.Follow(ctx, id, f.after, a.Notef, show)
	}
	l, err := c.Events(ctx, id, f.after, false)
	if err != nil {
		return err
	}
	defer l.Close()
	var e client.Event
	for {
		switch err := l.Next(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case e.Seq == 0 && (e.Type == "error" || e.Type == "reconnect"):
			return fmt.Errorf("record interrupted after event %d: %s", f.after, e.Message)
		case e.Seq == 0:
			continue
		}
		f.after = e.Seq
		if err := show(&e); err != nil {
			return err
		}
	}
}

// skipGone starts logs without --after at the first event that is kept, and prints a
// message, if retention has dropped the record's beginning.
func (a *app) skipGone(ctx context.Context, c *client.Client, f *logsFlags, id string) error {
	if f.after > 0 {
		return nil
	}
	l, err := c.Events(ctx, id, 0, false)
	if err == nil {
		l.Close()
		return nil
	}
	var gone *client.Error
	if errors.As(err, &gone) && gone.Status == http.StatusGone && gone.First > 1 {
		f.after = gone.First - 1
		a.Notef("events 1 to %d were deleted by retention", f.after)
		return nil
	}
	return err
}

// logWriter writes the events of a record. It removes terminal queries from the output:
// the answers would reach the next reader of the terminal, such as a shell.
type logWriter struct {
	a        *app
	out, err *logOutput
	json     bool
	limit    time.Duration
}

// logOutput is an output with an optional timestamp before each line.
type logOutput struct {
	*output.Writer
	stamps bool
	color  func(string) string // of timestamps
	within bool                // the last byte was not a line end
	buf    []byte
}

func (a *app) newLogOutput(w io.Writer, stamps bool) *logOutput {
	return &logOutput{Writer: output.New(w), stamps: stamps, color: func(s string) string { return a.Paint(w, command.Dim, s) }}
}

// lines writes output that was printed at the given time. A line in several pieces gets
// the time of the first.
func (o *logOutput) lines(p []byte, at time.Time) error {
	p = o.Clean(p, true)
	if !o.stamps {
		return o.Send(p)
	}
	stamp := o.color(client.FormatTime(at)) + " "
	o.buf = o.buf[:0]
	for line := range bytes.Lines(p) {
		if !o.within {
			o.buf = append(o.buf, stamp...)
		}
		o.buf = append(o.buf, line...)
		o.within = line[len(line)-1] != '\n'
	}
	return o.Send(o.buf)
}

// event writes one event.
func (l *logWriter) event(e *client.Event) error {
	if l.json {
		return l.out.Show(e.Line, true) // JSON does not escape C1 controls
	}
	out := l.out
	switch e.Type {
	case "stderr":
		out = l.err
	case "stdout", "pty":
	case "accepted":
		l.limit = time.Duration(e.TimeoutMS) * time.Millisecond
		return nil
	case "gap":
		l.a.Notef("events %d to %d cannot be read: %s", e.From, e.To, e.Reason)
		return nil
	case "truncated":
		l.a.Notef("%d bytes of %s were dropped", e.Dropped, e.Stream)
		return nil
	case "omitted":
		l.a.Notef("%d bytes of %s were not kept", e.Omitted, e.Stream)
		return nil
	case "error", "lost":
		l.a.Notef("%s: %s%s", e.Type, e.Message, e.Reason)
		return nil
	case "end":
		if why := endReason(e, l.limit); why != "" && e.Cause != notStarted {
			l.a.Notef("%s", why)
		}
		return nil
	default:
		return nil
	}
	return out.lines(e.Bytes(), e.Time)
}

// parseSince parses a time or an age; empty is the zero time.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("--since %q must be a duration such as 10m, or a time such as 2006-01-02T15:04:05Z", s)
	}
	return t, nil
}
