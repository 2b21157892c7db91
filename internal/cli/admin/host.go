package admin

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

func (a *app) hostCommand() *cobra.Command {
	c := &cobra.Command{Use: "host", Short: "List, drain and undrain hosts"}
	ls := a.hostsCommand()
	ls.Use, ls.Aliases = "ls", []string{"list"}
	undrainable := &cobra.Command{
		Use:               "undrainable HOST...",
		Short:             "List what would be lost with a host",
		Args:              command.IDArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.CompleteArgs(command.HostNames(), 0),
		RunE: a.Each(command.HostNames(), func(ctx context.Context, c *client.Client, name string) error {
			h, err := undrainable(ctx, c, name)
			if err != nil {
				return err
			}
			return a.showUndrainable(h)
		}),
	}
	undrain := &cobra.Command{
		Use: "undrain HOST...", Short: "Let hosts accept new sandboxes again", Args: command.IDArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.CompleteArgs(command.HostNames(), 0),
		RunE: a.Each(command.HostNames(), func(ctx context.Context, c *client.Client, name string) error {
			return postHost(ctx, c, name, "undrain")
		}),
	}
	c.AddCommand(ls, a.hostDrain(), undrain, undrainable)
	return c
}

func (a *app) hostsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hosts",
		Short: "List hosts with their state, capacity and load",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			hosts, err := c.Hosts(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(hosts)
			}
			rows := make([][]string, len(hosts))
			for i, h := range hosts {
				rows[i] = []string{
					h.Name, h.Status(), fmt.Sprintf("%d/%d", h.Sandboxes, h.Capacity), strconv.Itoa(h.Processes),
					strconv.FormatFloat(h.Load1, 'f', 2, 64), h.DriverList(), h.Version,
				}
			}
			return a.Table([]string{"HOST", "STATE", "SANDBOXES", "PROCESSES", "LOAD", "DRIVERS", "VERSION"}, rows)
		},
	}
}

const drainPoll = time.Second // interval between two polls of a draining host

func (a *app) hostDrain() *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:   "drain HOST...",
		Short: "Stop placing sandboxes on hosts",
		Long: `Stop placing sandboxes on hosts and list what would be lost with each host. Running
sandboxes keep running, and paused ones stay paused. Snapshots and templates that only
this host has are copied to the servers' store if another host could use them;
sandboxes and volumes cannot be moved.

With --wait the list is printed again when it changes, until it is empty. The command
fails if everything that is left can neither end nor be copied; the error lists it with
the reasons.`,
		Args:              command.IDArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.CompleteArgs(command.HostNames(), 0),
		RunE: a.Each(command.HostNames(), func(ctx context.Context, c *client.Client, name string) error {
			if err := postHost(ctx, c, name, "drain"); err != nil {
				return err
			}
			h, err := undrainable(ctx, c, name)
			if err != nil {
				return err
			}
			if err := a.showUndrainable(h); err != nil || !wait {
				return err
			}
			t := time.NewTicker(drainPoll)
			defer t.Stop()
			return a.awaitSafe(ctx, c, h, t.C)
		}),
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until the hosts can be switched off without loss")
	return c
}

// awaitSafe polls until a host can be switched off without loss, and prints changes. It
// fails once everything that is left has to stay.
func (a *app) awaitSafe(ctx context.Context, c *client.Client, h undrainableInfo, poll <-chan time.Time) error {
	for !h.Safe {
		if err := h.blocked(); err != nil {
			return err
		}
		select {
		case <-poll:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := undrainable(ctx, c, h.Host)
		if err != nil {
			return err
		}
		if now.Safe != h.Safe || now.State != h.State || !slices.Equal(now.Items, h.Items) {
			if err := a.showUndrainable(now); err != nil {
				return err
			}
		}
		h = now
	}
	return nil
}

// undrainableInfo lists what would be lost with one host.
type undrainableInfo struct {
	Host  string            `json:"host"`
	State string            `json:"state"`
	Safe  bool              `json:"safe"` // the host can be switched off
	Items []undrainableItem `json:"undrainable"`
}

type undrainableItem struct {
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Tenant string `json:"tenant"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// stays reports whether the item leaves its host only by a user's action. Other items
// leave by themselves: running sandboxes end, and copies are made.
func (x *undrainableItem) stays() bool { return x.State == "stays" || x.State == client.StatePaused }

// blocked returns an error with the items and reasons if all that a host has stays.
func (h *undrainableInfo) blocked() error {
	const most = 10 // items in the error; the table lists all
	var named []string
	for _, x := range h.Items {
		if !x.stays() {
			return nil
		}
		if len(named) < most {
			named = append(named, output.Printable(fmt.Sprintf("%s %s (%s)", x.Kind, x.ID, x.Reason)))
		}
	}
	switch n := len(h.Items); {
	case n == 0:
		return nil
	case n > most:
		named = append(named, fmt.Sprintf("and %d more", n-most))
	}
	return fmt.Errorf("items that can neither end nor be copied remain: %s", strings.Join(named, ", "))
}

func postHost(ctx context.Context, c *client.Client, name, verb string) error {
	_, err := c.Call(ctx, &client.Request{Method: "POST", Path: "/v1/hosts/" + url.PathEscape(name) + "/" + verb}, nil)
	return err
}

func undrainable(ctx context.Context, c *client.Client, name string) (h undrainableInfo, err error) {
	_, err = c.Call(ctx, &client.Request{Method: "GET", Path: "/v1/hosts/" + url.PathEscape(name) + "/undrainable"}, &h)
	return h, err
}

func (a *app) showUndrainable(h undrainableInfo) error {
	asJSON, err := a.JSON()
	if err != nil {
		return err
	}
	if asJSON {
		return a.WriteJSON(h)
	}
	if len(h.Items) > 0 {
		rows := make([][]string, len(h.Items))
		for i, x := range h.Items {
			rows[i] = []string{x.Kind, x.ID, orDash(x.Name), x.Tenant, x.State, x.Reason}
		}
		if err := a.Table([]string{"KIND", "ID", "NAME", "TENANT", "STATE", "WHAT TO DO"}, rows); err != nil {
			return err
		}
	}
	verdict := fmt.Sprintf("host %s must not be switched off (items that would be lost: %d)", h.Host, len(h.Items))
	switch {
	case h.Safe:
		verdict = fmt.Sprintf("host %s can be switched off: nothing would be lost", h.Host)
	case len(h.Items) == 0:
		verdict = fmt.Sprintf("host %s has nothing to lose but accepts new sandboxes: drain it first", h.Host)
	}
	_, err = fmt.Fprintln(a.Out, verdict)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
