package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
	"github.com/millrace/millrace/internal/waiting"
)

// tailFlags holds the flags of events tail.
type tailFlags struct {
	tenant, sandbox, process string
	kinds                    []string
	after                    string
	noFollow, json           bool
}

func (a *app) eventsCommand() *cobra.Command {
	c := &cobra.Command{Use: "events", Short: "Watch the events of all records"}
	var f tailFlags
	tail := &cobra.Command{
		Use:   "tail",
		Short: "Print events of all records as they are stored",
		Long: `Print the events of all records as they are stored: of sandboxes, processes, hosts
and keys. The flags filter them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tail(cmd.Context(), &f) },
	}
	tail.Flags().StringVar(&f.tenant, "tenant", "", "print only events of this tenant (default all)")
	tail.Flags().StringVarP(&f.sandbox, "sandbox", "s", "", "print only events of this sandbox and its processes (default all)")
	tail.Flags().StringVarP(&f.process, "process", "p", "", "print only events of this process (default all)")
	tail.Flags().StringSliceVarP(&f.kinds, "kind", "k", nil, "print only events of these kinds, such as start, end, running or lost (default all)")
	tail.Flags().StringVar(&f.after, "since", "", "start time, as RFC 3339 or as an age such as 10m (default now, with --no-follow the first event)")
	tail.Flags().BoolVar(&f.noFollow, "no-follow", false, "exit after the last stored event")
	tail.Flags().BoolVar(&f.json, "json", false, "print events as NDJSON")
	a.FlagIs(tail, "sandbox", command.EverySandbox())
	a.FlagIs(tail, "process", command.ProcessIDs())
	c.AddCommand(tail)
	return c
}

func (f *tailFlags) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"tenant": f.tenant, "sandbox": f.sandbox, "process": f.process, "kind": strings.Join(f.kinds, ","), "after": f.after} {
		if v != "" {
			q.Set(name, v)
		}
	}
	switch {
	case f.noFollow:
		q.Set("follow", "0")
	case f.after == "":
		q.Set("after", "now")
	}
	return q
}

// expand replaces prefixes of ids by full ids. A record may be kept longer than its entry
// in the lists, so an id that is not found is used unchanged.
func (f *tailFlags) expand(ctx context.Context, c *client.Client) error {
	for id, lookup := range map[*string]struct {
		kind command.IDKind
		get  func(string) error
	}{
		&f.sandbox: {command.EverySandbox(), func(id string) error { _, err := c.Sandbox(ctx, id); return err }},
		&f.process: {command.ProcessIDs(), func(id string) error { _, err := c.Process(ctx, id); return err }},
	} {
		if *id == "" {
			continue
		}
		err := command.ByID(ctx, c, lookup.kind, *id, func(full string) error {
			err := lookup.get(full)
			if err == nil {
				*id = full
			}
			return err
		})
		if ambiguous, ok := errors.AsType[*command.AmbiguousError](err); ok {
			return ambiguous
		}
	}
	return nil
}

// overlap is how far back a tail starts when it resumes: events of one record are
// ordered, but the clocks of different writers differ.
const overlap = 5 * time.Second

// tail writes the events. When the connection breaks it resumes after the last event.
func (a *app) tail(ctx context.Context, f *tailFlags) error {
	c, asJSON, err := a.Open()
	if err != nil {
		return err
	}
	if err := f.expand(ctx, c); err != nil {
		return err
	}
	t := tailer{app: a, c: c, f: f, json: asJSON || f.json, seen: make(map[string]time.Time)}
	for wait := time.Duration(0); ; wait = min(max(2*wait, 50*time.Millisecond), 2*time.Second) {
		if !waiting.Sleep(ctx, wait) {
			return nil
		}
		was := t.last
		done, err := t.once(ctx)
		if done || ctx.Err() != nil {
			return err
		}
		if !t.last.IsZero() {
			f.after = t.last.Add(-overlap).UTC().Format(time.RFC3339Nano)
		}
		if t.last.After(was) {
			wait = 0
		}
		a.Notef("connection lost (%v); resuming", err)
	}
}

// tailer is one tail over any number of connections.
type tailer struct {
	*app
	c    *client.Client
	f    *tailFlags
	json bool
	last time.Time            // time of the latest event
	seen map[string]time.Time // events written lately: a resumed stream repeats them
}

// tailLine holds the fields that identify an event.
type tailLine struct {
	Record, Type, Sandbox, Process, Message string
	Seq                                     uint64
	Time                                    time.Time
}

// once follows on one connection. done reports that a new connection would not help.
func (t *tailer) once(ctx context.Context) (done bool, err error) {
	l, err := t.c.Lines(ctx, &client.Request{Method: "GET", Path: "/v1/events", Query: t.f.query()})
	if err != nil {
		return !client.Retryable(err), err
	}
	defer l.Close()
	for {
		raw, err := l.Raw()
		if err != nil {
			over := t.f.noFollow && errors.Is(err, io.EOF)
			return over, ifNot(over, err)
		}
		var e tailLine
		if err := json.Unmarshal(raw, &e); err != nil {
			return true, fmt.Errorf("read an event: %w", client.WithMessage(err))
		}
		switch {
		case e.Seq == 0 && e.Type == "reconnect":
			return false, errors.New("the gateway is shutting down")
		case e.Seq == 0 && e.Type == "error":
			return true, errors.New(e.Message)
		case e.Seq == 0 || !t.isNew(&e):
			continue
		}
		if err := t.write(raw); err != nil {
			return true, err
		}
	}
}

// isNew reports whether an event was not written before, and marks it as written.
func (t *tailer) isNew(e *tailLine) bool {
	key := fmt.Sprint(e.Record, " ", e.Sandbox, " ", e.Process, " ", e.Seq)
	if _, old := t.seen[key]; old {
		return false
	}
	t.seen[key] = e.Time
	if e.Time.After(t.last) {
		t.last = e.Time
	}
	const most = 1 << 16
	if len(t.seen) > most {
		for k, at := range t.seen {
			if t.last.Sub(at) > 2*overlap {
				delete(t.seen, k)
			}
		}
	}
	return true
}

func (t *tailer) write(raw []byte) error {
	if t.json {
		_, err := output.New(t.Out).Write(raw)
		return err
	}
	var e map[string]any
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.Out, t.readable(e))
	return err
}

func ifNot(drop bool, err error) error {
	if drop {
		return nil
	}
	return err
}

// readable formats one event as a line of text: time, type, id and the other fields.
func (a *app) readable(e map[string]any) string {
	take := func(name string) string {
		v, ok := e[name]
		delete(e, name)
		if !ok || v == nil {
			return ""
		}
		return output.Printable(fmt.Sprint(v))
	}
	at, err := time.Parse(time.RFC3339Nano, take("time"))
	stamp := client.FormatTime(at)
	if err != nil {
		stamp = strings.Repeat(" ", len(stamp))
	}
	kind := take("type")
	name := take("process")
	sbx := take("sandbox")
	if name == "" {
		name = sbx
	}
	take("record")
	take("rev")
	var rest []string
	for _, k := range slices.Sorted(maps.Keys(e)) {
		v, err := json.Marshal(e[k])
		if err == nil && string(v) != "null" {
			rest = append(rest, k+"="+string(v))
		}
	}
	return fmt.Sprintf("%s %s %s %s", a.Paint(a.Out, command.Dim, stamp), a.Paint(a.Out, command.Bold, fmt.Sprintf("%-12s", kind)), name, strings.Join(rest, " "))
}
