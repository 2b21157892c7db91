package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
)

func (a *app) sandboxPause() *cobra.Command {
	return &cobra.Command{
		Use:   "pause SANDBOX...",
		Short: "Pause sandboxes",
		Args:  command.IDArgs(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 0),
		RunE: a.Each(command.SandboxIDs(), func(ctx context.Context, c *client.Client, id string) error {
			return c.PauseSandbox(ctx, id)
		}),
	}
}

func (a *app) sandboxResume() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "resume SANDBOX...",
		Short: "Resume paused sandboxes",
		Args:  command.IDArgs(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 0),
	}
	c.RunE = a.Each(command.SandboxIDs(), func(ctx context.Context, gw *client.Client, id string) error {
		return client.AtMost(timeout, c.Flags().Changed("timeout"), func(most time.Duration) error { return gw.ResumeSandbox(ctx, id, most) })
	})
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "minimum time until the sandboxes end; the default is capped by the gateway")
	return c
}

func (a *app) sandboxSnapshot() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "snapshot SANDBOX",
		Short: "Create a snapshot and print its id",
		Long: `Create a snapshot of a sandbox's files, and of its processes if the driver supports
that, and print its id. The id can be used with create --template.`,
		Args: command.IDArgs(cobra.ExactArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			var out client.Snapshot
			if err := command.ByID(cmd.Context(), c, command.SandboxIDs(), args[0], func(id string) (err error) {
				out, err = c.CreateSnapshot(cmd.Context(), id, name)
				return err
			}); err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(out)
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
		Args: command.IDArgs(cobra.ExactArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			var out []forked
			if err := command.ByID(cmd.Context(), c, command.SandboxIDs(), args[0], func(id string) error {
				return client.AtMost(timeout, cmd.Flags().Changed("timeout"), func(most time.Duration) error {
					body := map[string]int64{"timeout": client.Ceil(most, time.Second), "count": int64(count)}
					_, err := c.Call(cmd.Context(), &client.Request{Method: "POST", Path: client.SandboxPath(id) + "/fork", JSON: body}, &out)
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
	Sandbox *client.CreatedSandbox `json:"sandbox"`
	Error   client.Error           `json:"error"`
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
		return errors.Join(append(errs, a.WriteJSON(made))...)
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
		Use: "rm SNAPSHOT...", Short: "Remove snapshots", Args: command.IDArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.CompleteArgs(command.SnapshotIDs(), 0),
		RunE: a.Each(command.SnapshotIDs(), func(ctx context.Context, c *client.Client, id string) error {
			_, err := c.Call(ctx, &client.Request{Method: "DELETE", Path: "/templates/" + url.PathEscape(id)}, nil)
			return err
		}),
	})
	return c
}

func (a *app) listSnapshots(cmd *cobra.Command, _ []string) error {
	c, asJSON, err := a.Open()
	if err != nil {
		return err
	}
	all, err := c.Snapshots(cmd.Context())
	if err != nil {
		return err
	}
	if asJSON {
		return a.WriteJSON(all)
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		name := "-"
		if len(s.Names) > 0 {
			name = s.Names[0]
		}
		rows[i] = []string{s.ID, name}
	}
	return a.Table([]string{"SNAPSHOT", "NAME"}, rows)
}
