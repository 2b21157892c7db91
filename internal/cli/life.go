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
		Short: "Have sandboxes stand still, with all that runs in them",
		Args:  ids(cobra.MinimumNArgs(1)),
		RunE: a.each(func(ctx context.Context, c *client, id string) error {
			return c.pauseSandbox(ctx, id)
		}),
	}
}

func (a *app) sandboxResume() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "resume SANDBOX...",
		Short: "Have paused sandboxes go on",
		Args:  ids(cobra.MinimumNArgs(1)),
	}
	c.RunE = a.each(func(ctx context.Context, gw *client, id string) error {
		return atMost(timeout, c.Flags().Changed("timeout"), func(most time.Duration) error { return gw.resumeSandbox(ctx, id, most) })
	})
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "when they end, from now; never nearer than it was; the default is less where the gateway allows less")
	return c
}

// each runs f for every argument, and tells which of them failed.
func (a *app) each(f func(context.Context, *client, string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		failed := false
		for _, arg := range args {
			if err := f(cmd.Context(), c, arg); err != nil {
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

type snapshotInfo struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func (a *app) sandboxSnapshot() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "snapshot SANDBOX",
		Short: "Keep a sandbox's files, and its processes where its driver can; the id that is printed is good for create --template",
		Args:  ids(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var out snapshotInfo
			body := map[string]string{"name": name}
			if _, err := c.call(cmd.Context(), &request{method: "POST", path: sandboxPath(args[0]) + "/snapshots", json: body}, &out); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.Out, out.ID)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "NAME or NAME:TAG to find it by")
	return c
}

func (a *app) sandboxFork() *cobra.Command {
	var timeout time.Duration
	var count int
	c := &cobra.Command{
		Use:   "fork SANDBOX",
		Short: "Create sandboxes with the files that one has now, and its processes where its driver can, and print their ids",
		Args:  ids(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var out []struct {
				Sandbox *sandboxInfo `json:"sandbox"`
				Error   apiError     `json:"error"`
			}
			if err := atMost(timeout, cmd.Flags().Changed("timeout"), func(most time.Duration) error {
				body := map[string]int64{"timeout": ceil(most, time.Second), "count": int64(count)}
				_, err := c.call(cmd.Context(), &request{method: "POST", path: sandboxPath(args[0]) + "/fork", json: body}, &out)
				return err
			}); err != nil {
				return err
			}
			var errs []error
			for _, f := range out {
				if f.Sandbox == nil {
					errs = append(errs, fmt.Errorf("a fork failed: %w", &f.Error))
				} else if _, err := fmt.Fprintln(a.Out, f.Sandbox.ID); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "when they end, from now; the default is less where the gateway allows less")
	c.Flags().IntVar(&count, "count", 1, "how many")
	return c
}

func (a *app) snapshotCommand() *cobra.Command {
	c := &cobra.Command{Use: "snapshot", Short: "List and remove snapshots of sandboxes"}
	c.AddCommand(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List snapshots", Args: cobra.NoArgs, RunE: a.listSnapshots,
	}, &cobra.Command{
		Use: "rm SNAPSHOT...", Short: "Remove snapshots", Args: ids(cobra.MinimumNArgs(1)),
		RunE: a.each(func(ctx context.Context, c *client, id string) error {
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
	all := []snapshotInfo{}
	q := url.Values{"limit": {"100"}}
	for more := true; more; {
		var page []snapshotInfo
		var h http.Header
		if h, err = c.call(cmd.Context(), &request{method: "GET", path: "/snapshots", query: q}, &page); err != nil {
			return err
		}
		all = append(all, page...)
		q.Set("nextToken", h.Get("X-Next-Token"))
		more = q.Get("nextToken") != ""
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
