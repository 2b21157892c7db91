package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) sandboxPause() *cobra.Command {
	return &cobra.Command{
		Use:   "pause SANDBOX...",
		Short: "Pause sandboxes",
		Args:  ids(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.completeArgs(sandboxIDs(), 0),
		RunE: a.each(sandboxIDs(), func(ctx context.Context, c *client, id string) error {
			return c.pauseSandbox(ctx, id)
		}),
	}
}

func (a *app) sandboxResume() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "resume SANDBOX...",
		Short: "Resume paused sandboxes",
		Args:  ids(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.completeArgs(sandboxIDs(), 0),
	}
	c.RunE = a.each(sandboxIDs(), func(ctx context.Context, gw *client, id string) error {
		return atMost(timeout, c.Flags().Changed("timeout"), func(most time.Duration) error { return gw.resumeSandbox(ctx, id, most) })
	})
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "minimum time until the sandboxes end; the default is capped by the gateway")
	return c
}

// each runs f for every argument, an id of kind k, and prints an error for each that fails.
func (a *app) each(k idKind, f func(context.Context, *client, string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		failed := false
		for _, arg := range args {
			if err := c.byID(cmd.Context(), k, arg, func(id string) error { return f(cmd.Context(), c, id) }); err != nil {
				a.notef("%s: %v", arg, err)
				failed = true
			}
		}
		if failed {
			return &ExitError{Code: 1}
		}
		return nil
	}
}

// snapshotWire is a snapshot as the gateway sends it, and snapshotInfo as the CLI prints it.
type (
	snapshotWire struct {
		ID    string   `json:"snapshotID"`
		Names []string `json:"names"`
	}
	snapshotInfo struct {
		ID    string   `json:"snapshot"`
		Names []string `json:"names"`
	}
)

func (a *app) sandboxSnapshot() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "snapshot SANDBOX",
		Short: "Create a snapshot and print its id",
		Long: `Create a snapshot of a sandbox's files, and of its processes if the driver supports
that, and print its id. The id can be used with create --template.`,
		Args: ids(cobra.ExactArgs(1)),

		ValidArgsFunction: a.completeArgs(sandboxIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.open()
			if err != nil {
				return err
			}
			var out snapshotWire
			body := map[string]string{"name": name}
			if err := c.byID(cmd.Context(), sandboxIDs(), args[0], func(id string) error {
				_, err := c.call(cmd.Context(), &request{method: "POST", path: sandboxPath(id) + "/snapshots", json: body}, &out)
				return err
			}); err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(snapshotInfo(out))
			}
			_, err = fmt.Fprintln(a.Out, out.ID)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the snapshot, as NAME or NAME:TAG (default none)")
	return c
}

func (a *app) sandboxFork() *cobra.Command {
	var timeout time.Duration
	var count int
	c := &cobra.Command{
		Use:   "fork SANDBOX",
		Short: "Create copies of a sandbox and print their ids",
		Long: `Create sandboxes with the current files of another sandbox, and with its processes if
the driver supports that, and print their ids.`,
		Args: ids(cobra.ExactArgs(1)),

		ValidArgsFunction: a.completeArgs(sandboxIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.open()
			if err != nil {
				return err
			}
			var out []forked
			if err := c.byID(cmd.Context(), sandboxIDs(), args[0], func(id string) error {
				return atMost(timeout, cmd.Flags().Changed("timeout"), func(most time.Duration) error {
					body := map[string]int64{"timeout": ceil(most, time.Second), "count": int64(count)}
					_, err := c.call(cmd.Context(), &request{method: "POST", path: sandboxPath(id) + "/fork", json: body}, &out)
					return err
				})
			}); err != nil {
				return err
			}
			return a.showForks(out, asJSON)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "time until the copies end; the default is capped by the gateway")
	c.Flags().IntVar(&count, "count", 1, "number of copies")
	return c
}

// forked is a fork or the reason why it failed, as the gateway sends it.
type forked struct {
	Sandbox *createdSandbox `json:"sandbox"`
	Error   apiError        `json:"error"`
}

func (a *app) showForks(all []forked, asJSON bool) error {
	made := []newSandbox{}
	var errs []error
	for _, f := range all {
		if f.Sandbox == nil {
			errs = append(errs, fmt.Errorf("fork failed: %w", &f.Error))
			continue
		}
		made = append(made, newSandbox(*f.Sandbox))
	}
	if asJSON {
		return errors.Join(append(errs, a.writeJSON(made))...)
	}
	for _, s := range made {
		if _, err := fmt.Fprintln(a.Out, s.ID); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func (a *app) snapshotCommand() *cobra.Command {
	c := &cobra.Command{Use: "snapshot", Short: "List and remove snapshots of sandboxes"}
	c.AddCommand(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List snapshots", Args: cobra.NoArgs, RunE: a.listSnapshots,
	}, &cobra.Command{
		Use: "rm SNAPSHOT...", Short: "Remove snapshots", Args: ids(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeArgs(snapshotIDs(), 0),
		RunE: a.each(snapshotIDs(), func(ctx context.Context, c *client, id string) error {
			_, err := c.call(ctx, &request{method: "DELETE", path: "/templates/" + url.PathEscape(id)}, nil)
			return err
		}),
	})
	return c
}

func (a *app) listSnapshots(cmd *cobra.Command, _ []string) error {
	c, asJSON, err := a.open()
	if err != nil {
		return err
	}
	all, err := c.snapshots(cmd.Context())
	if err != nil {
		return err
	}
	if asJSON {
		return a.writeJSON(all)
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		name := "-"
		if len(s.Names) > 0 {
			name = s.Names[0]
		}
		rows[i] = []string{s.ID, name}
	}
	return a.table([]string{"SNAPSHOT", "NAME"}, rows)
}

// snapshots returns all snapshots; it reads the list page by page.
func (c *client) snapshots(ctx context.Context) ([]snapshotInfo, error) {
	all := []snapshotInfo{}
	q := url.Values{"limit": {"100"}}
	for more := true; more; {
		var page []snapshotWire
		h, err := c.call(ctx, &request{method: http.MethodGet, path: "/snapshots", query: q}, &page)
		if err != nil {
			return nil, err
		}
		for _, s := range page {
			all = append(all, snapshotInfo(s))
		}
		q.Set("nextToken", h.Get("X-Next-Token"))
		more = q.Get("nextToken") != ""
	}
	return all, nil
}
