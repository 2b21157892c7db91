package cli

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
)

// tailFlags are those of events tail.
type tailFlags struct {
	tenant, sandbox, process string
	kinds                    []string
	after                    string
	noFollow, json           bool
}

func (a *app) eventsCommand() *cobra.Command {
	c := &cobra.Command{Use: "events", Short: "Watch what happens"}
	var f tailFlags
	tail := &cobra.Command{
		Use:   "tail",
		Short: "Write every event of every record, as it is stored",
		Long: `Write every event of every record as it is stored: sandboxes, processes, hosts
and keys. Filters narrow it down.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tail(cmd.Context(), &f) },
	}
	tail.Flags().StringVar(&f.tenant, "tenant", "", "only of this tenant")
	tail.Flags().StringVarP(&f.sandbox, "sandbox", "s", "", "only of this sandbox and its processes")
	tail.Flags().StringVarP(&f.process, "process", "p", "", "only of this process")
	tail.Flags().StringSliceVarP(&f.kinds, "kind", "k", nil, "only of these kinds (start, end, running, lost...)")
	tail.Flags().StringVar(&f.after, "after", "", "begin after this cursor; default: now")
	tail.Flags().BoolVar(&f.noFollow, "no-follow", false, "end with what is stored")
	tail.Flags().BoolVar(&f.json, "json", false, "write NDJSON")
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
	if f.noFollow {
		q.Set("follow", "0")
	}
	return q
}

// tail writes the events, and comes back where it was when the connection
// breaks.
func (a *app) tail(ctx context.Context, f *tailFlags) error {
	asJSON, err := a.json()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	asJSON = asJSON || f.json
	for wait := time.Duration(0); ; wait = min(max(2*wait, 50*time.Millisecond), 2*time.Second) {
		if !pause(ctx, wait) {
			return nil
		}
		was := f.after
		done, err := a.tailOnce(ctx, c, f, asJSON)
		if done || ctx.Err() != nil {
			return err
		}
		if f.after != was {
			wait = 0
		}
		a.notef("connection lost (%v); resuming", err)
	}
}

func (a *app) tailOnce(ctx context.Context, c *client, f *tailFlags, asJSON bool) (done bool, err error) {
	l, err := c.lines(ctx, &request{method: "GET", path: "/v1/events", query: f.query()})
	if err != nil {
		return !again(err), err
	}
	defer l.close()
	for {
		raw, err := l.raw()
		if err != nil {
			return f.noFollow && errors.Is(err, io.EOF), ifNot(f.noFollow && errors.Is(err, io.EOF), err)
		}
		var e map[string]any
		if err := json.Unmarshal(raw, &e); err != nil {
			return true, err
		}
		if cursor, ok := e["cursor"].(string); ok {
			f.after = cursor
		}
		switch e["type"] {
		case "keepalive":
			continue
		case "reconnect":
			return false, errors.New("the gateway goes away")
		}
		if asJSON {
			_, err = a.Out.Write(raw)
		} else {
			_, err = fmt.Fprintln(a.Out, a.readable(e))
		}
		if err != nil {
			return true, err
		}
	}
}

func ifNot(drop bool, err error) error {
	if drop {
		return nil
	}
	return err
}

// readable is one event for people: time, what, of whom, and the rest.
func (a *app) readable(e map[string]any) string {
	take := func(name string) string {
		v, ok := e[name]
		delete(e, name)
		if !ok || v == nil {
			return ""
		}
		return printable(fmt.Sprint(v))
	}
	at, err := time.Parse(time.RFC3339Nano, take("time"))
	stamp := at.Local().Format("15:04:05.000")
	if err != nil {
		stamp = strings.Repeat(" ", len("15:04:05.000"))
	}
	kind := take("type")
	name := take("process")
	sbx := take("sandbox")
	for _, other := range []string{sbx, take("host"), take("aggregate"), take("id")} {
		if name == "" {
			name = other
		}
	}
	take("cursor")
	var rest []string
	for _, k := range slices.Sorted(maps.Keys(e)) {
		v, err := json.Marshal(e[k])
		if err == nil && string(v) != "null" {
			rest = append(rest, k+"="+string(v))
		}
	}
	return fmt.Sprintf("%s %s %s %s", a.paint(a.Out, dim, stamp), a.paint(a.Out, bold, fmt.Sprintf("%-12s", kind)), name, strings.Join(rest, " "))
}
