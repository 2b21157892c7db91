package processes

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

func (a *app) psCommand() *cobra.Command {
	var sbx string
	var all, quiet bool
	c := &cobra.Command{
		Use:   "ps",
		Short: "List the newest running processes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			q := client.ProcessQuery{States: "starting,running"}
			if all {
				q.States = ""
			}
			found, more := []client.Process{}, false
			if err := command.ByID(cmd.Context(), c, command.EverySandbox(), sbx, func(id string) error {
				q.Sandbox = id
				page, rest, err := c.Processes(cmd.Context(), q, all)
				found, more = append(found, page...), rest
				return err
			}); err != nil {
				return err
			}
			if more {
				a.Notef("these are the %d newest processes; use --all to list all", len(found))
			}
			switch {
			case quiet:
				return command.LineEach(a.Env, found, func(p *client.Process) string { return p.ID })
			case asJSON:
				return a.WriteJSON(found)
			}
			return a.processTable(found)
		},
	}
	c.Flags().StringVarP(&sbx, "sandbox", "s", "", "list only processes of this sandbox (default all)")
	a.FlagIs(c, "sandbox", command.EverySandbox())
	c.Flags().BoolVarP(&all, "all", "a", false, "list all processes, including ended ones")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	return c
}

func (a *app) processTable(all []client.Process) error {
	now := time.Now()
	rows := make([][]string, len(all))
	for i, p := range all {
		rows[i] = []string{p.ID, strconv.FormatUint(uint64(p.PID), 10), p.Status(), output.Age(now, &p.StartedAt.Time), p.CommandLine()}
	}
	return a.Table([]string{"PROCESS", "PID", "STATUS", "AGE", "COMMAND"}, rows)
}

func (a *app) killCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "kill PROCESS...",
		Short: "Send a signal to processes and their children",
		Args:  command.IDArgs(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.ProcessIDs(), 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			sig, err := parseSignal(name)
			if err != nil {
				return err
			}
			return a.Each(command.ProcessIDs(), func(ctx context.Context, c *client.Client, id string) error { return c.Signal(ctx, id, sig) })(cmd, args)
		},
	}
	c.Flags().StringVarP(&name, "signal", "s", "KILL", "signal to send, by name or number")
	return c
}
