package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) hostCommand() *cobra.Command {
	c := &cobra.Command{Use: "host", Short: "List hosts, have them take no new sandbox, and see when one may be switched off"}
	ls := a.hostsCommand()
	ls.Use, ls.Aliases = "ls", []string{"list"}
	held := &cobra.Command{
		Use:               "held HOST...",
		Short:             "List what only a host has, and would be lost if it were switched off now",
		Args:              ids(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeArgs(hostNames(), 0),
		RunE: a.each(hostNames(), func(ctx context.Context, c *client, name string) error {
			h, err := c.held(ctx, name)
			if err != nil {
				return err
			}
			return a.showHeld(h)
		}),
	}
	undrain := &cobra.Command{
		Use: "undrain HOST...", Short: "Have hosts take new sandboxes again", Args: ids(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeArgs(hostNames(), 0),
		RunE:              a.each(hostNames(), func(ctx context.Context, c *client, name string) error { return c.tellHost(ctx, name, "undrain") }),
	}
	c.AddCommand(ls, a.hostDrain(), undrain, held)
	return c
}

const drainLook = time.Second // between two looks at what a host still has

func (a *app) hostDrain() *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:   "drain HOST...",
		Short: "Have hosts take no new sandbox, and list what is left there",
		Long: `Have hosts take no new sandbox. What runs there goes on, and what is paused there stays.
Snapshots and templates that only such a host has are copied to the servers' store, as
far as another host could use them; sandboxes and volumes cannot be moved. What is left
is listed: it is lost when the host is switched off.

With --wait that is listed again as it changes, until it is empty. Where only such things
are left as stay there the command fails, and says what they are, and why.`,
		Args:              ids(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeArgs(hostNames(), 0),
		RunE: a.each(hostNames(), func(ctx context.Context, c *client, name string) error {
			if err := c.tellHost(ctx, name, "drain"); err != nil {
				return err
			}
			h, err := c.held(ctx, name)
			if err != nil {
				return err
			}
			if err := a.showHeld(h); err != nil || !wait {
				return err
			}
			t := time.NewTicker(drainLook)
			defer t.Stop()
			return a.awaitSafe(ctx, c, h, t.C)
		}),
	}
	c.Flags().BoolVar(&wait, "wait", false, "return when the hosts may be switched off without loss, or never can be as it is")
	return c
}

// awaitSafe looks until a host has nothing that would be lost with it, and shows
// what changes. It fails once nothing is on its way from there any more.
func (a *app) awaitSafe(ctx context.Context, c *client, h heldInfo, look <-chan time.Time) error {
	for !h.Safe {
		if err := h.stuck(); err != nil {
			return err
		}
		select {
		case <-look:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := c.held(ctx, h.Host)
		if err != nil {
			return err
		}
		if now.Safe != h.Safe || now.State != h.State || !slices.Equal(now.Held, h.Held) {
			if err := a.showHeld(now); err != nil {
				return err
			}
		}
		h = now
	}
	return nil
}

// heldInfo is what only one host has.
type heldInfo struct {
	Host  string     `json:"host"`
	State string     `json:"state"`
	Safe  bool       `json:"safe"` // it may be switched off
	Held  []heldItem `json:"held"`
}

type heldItem struct {
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Tenant string `json:"tenant"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// stays reports whether nothing but somebody's doing takes it from its host:
// sandboxes end, but for those that are paused, and copies are made.
func (x *heldItem) stays() bool { return x.State == "stays" || x.State == statePaused }

// stuck is an error if all that a host has stays: it says what that is, and why.
func (h *heldInfo) stuck() error {
	const most = 10 // of those that are named; the table has all
	var named []string
	for _, x := range h.Held {
		if !x.stays() {
			return nil
		}
		if len(named) < most {
			named = append(named, printable(fmt.Sprintf("%s %s (%s)", x.Kind, x.ID, x.Reason)))
		}
	}
	switch n := len(h.Held); {
	case n == 0:
		return nil
	case n > most:
		named = append(named, fmt.Sprintf("and %d more", n-most))
	}
	return fmt.Errorf("nothing there ends or is copied any more, and this stays: %s", strings.Join(named, ", "))
}

func (c *client) tellHost(ctx context.Context, name, verb string) error {
	_, err := c.call(ctx, &request{method: "POST", path: "/v1/hosts/" + url.PathEscape(name) + "/" + verb}, nil)
	return err
}

func (c *client) held(ctx context.Context, name string) (h heldInfo, err error) {
	_, err = c.call(ctx, &request{method: "GET", path: "/v1/hosts/" + url.PathEscape(name) + "/held"}, &h)
	return h, err
}

func (a *app) showHeld(h heldInfo) error {
	asJSON, err := a.json()
	if err != nil {
		return err
	}
	if asJSON {
		return a.writeJSON(h)
	}
	if len(h.Held) > 0 {
		rows := make([][]string, len(h.Held))
		for i, x := range h.Held {
			rows[i] = []string{x.Kind, x.ID, orDash(x.Name), x.Tenant, x.State, x.Reason}
		}
		if err := a.table([]string{"KIND", "ID", "NAME", "TENANT", "STATE", "WHAT TO DO"}, rows); err != nil {
			return err
		}
	}
	verdict := fmt.Sprintf("host %s must not be switched off: what only it has would be lost (%d)", h.Host, len(h.Held))
	switch {
	case h.Safe:
		verdict = fmt.Sprintf("host %s may be switched off: nothing would be lost", h.Host)
	case len(h.Held) == 0:
		verdict = fmt.Sprintf("host %s has nothing that would be lost, but takes new sandboxes: drain it first", h.Host)
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
