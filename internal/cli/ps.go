package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) psCommand() *cobra.Command {
	var sbx string
	var all, quiet bool
	c := &cobra.Command{
		Use:   "ps",
		Short: "List processes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.open()
			if err != nil {
				return err
			}
			var found []processInfo
			if err := c.byID(cmd.Context(), everySandbox(), sbx, func(id string) (err error) {
				found, err = c.processes(cmd.Context(), id)
				return err
			}); err != nil {
				return err
			}
			kept := make([]processInfo, 0, len(found))
			for _, p := range found {
				if all || p.State != "ended" {
					kept = append(kept, p)
				}
			}
			switch {
			case quiet:
				return lineEach(a, kept, func(p *processInfo) string { return p.ID })
			case asJSON:
				return a.writeJSON(kept)
			}
			return a.processTable(kept)
		},
	}
	c.Flags().StringVarP(&sbx, "sandbox", "s", "", "list only processes of this sandbox (default all)")
	a.flagIs(c, "sandbox", everySandbox())
	c.Flags().BoolVarP(&all, "all", "a", false, "include ended processes")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	return c
}

func (a *app) processTable(all []processInfo) error {
	now := time.Now()
	rows := make([][]string, len(all))
	for i, p := range all {
		rows[i] = []string{p.ID, strconv.FormatUint(uint64(p.PID), 10), status(&p), age(now, &p.StartedAt.Time), line(&p)}
	}
	return a.table([]string{"PROCESS", "PID", "STATUS", "AGE", "COMMAND"}, rows)
}

// status returns the state of a process, or how it ended.
func status(p *processInfo) string {
	switch {
	case p.State != "ended":
		return p.State
	case p.Signal != 0:
		return fmt.Sprintf("%s (signal %d)", p.Cause, p.Signal)
	case p.ExitCode == nil:
		return p.Cause
	}
	return fmt.Sprintf("exited %d", *p.ExitCode)
}

// line returns a process's command line, shortened to fit a table.
func line(p *processInfo) string {
	const most = 60
	s := p.Cmd
	// The script of `sh -c` is more useful than the shell.
	if n := len(p.Args); n > 0 && (p.Args[0] == "-c" || n > 1 && p.Args[n-2] == "-c") {
		s = p.Args[n-1]
	} else if n > 0 {
		s += " " + strings.Join(p.Args, " ")
	}
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

func (a *app) killCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "kill PROCESS...",
		Short: "Send a signal to processes and their children",
		Args:  ids(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.completeArgs(processIDs(), 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			sig, err := parseSignal(name)
			if err != nil {
				return err
			}
			return a.each(processIDs(), func(ctx context.Context, c *client, id string) error { return c.signal(ctx, id, sig) })(cmd, args)
		},
	}
	c.Flags().StringVarP(&name, "signal", "s", "KILL", "signal to send, by name or number")
	return c
}

// drivers returns a host's drivers, each with its isolation in parentheses.
func (h *hostInfo) drivers() string {
	out := make([]string, len(h.Drivers))
	for i, d := range h.Drivers {
		if out[i] = d; i < len(h.Isolation) {
			out[i] += "(" + h.Isolation[i] + ")"
		}
	}
	return strings.Join(out, ",")
}

// state returns a host's state; for a draining host with the number of undrainable items.
func (h *hostInfo) state() string {
	switch {
	case h.State != "draining":
		return h.State
	case h.Undrainable == 0:
		return h.State + ", empty"
	}
	return fmt.Sprintf("%s, %d left", h.State, h.Undrainable)
}

func (a *app) hostsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hosts",
		Short: "List hosts with their state, capacity and load",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.open()
			if err != nil {
				return err
			}
			hosts, err := c.hosts(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(hosts)
			}
			rows := make([][]string, len(hosts))
			for i, h := range hosts {
				rows[i] = []string{
					h.Name, h.state(), fmt.Sprintf("%d/%d", h.Sandboxes, h.Capacity), strconv.Itoa(h.Processes),
					strconv.FormatFloat(h.Load1, 'f', 2, 64), h.drivers(), h.Version,
				}
			}
			return a.table([]string{"HOST", "STATE", "SANDBOXES", "PROCESSES", "LOAD", "DRIVERS", "VERSION"}, rows)
		},
	}
}

func sandboxPath(id string) string { return "/sandboxes/" + url.PathEscape(id) }
