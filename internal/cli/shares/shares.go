package shares

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
)

// app runs the subcommands of share.
type app struct{ *command.Env }

// Command returns the command share.
func Command(e *command.Env) *cobra.Command {
	a := &app{e}
	c := &cobra.Command{
		Use:     "share",
		Aliases: []string{"shares"},
		Short:   "Create, list and revoke links to terminals",
		Long: `A link shows a process, or all processes of a sandbox, to people without a key. They
can read the output and its record, and cannot type.`,
	}
	c.AddCommand(a.create(), a.list(), &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"revoke"},
		Short:   "Revoke links",
		Long:    "Revoke links. Pages that show them end.",
		Args:    command.IDArgs(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.ShareIDs(), 0),
		RunE: a.Each(command.ShareIDs(), func(ctx context.Context, c *client.Client, id string) error {
			_, err := c.Call(ctx, &client.Request{Method: "DELETE", Path: "/v1/shares/" + url.PathEscape(id)}, nil)
			return err
		}),
	})
	return c
}

func (a *app) create() *cobra.Command {
	var sandbox bool
	var seq uint64
	var expires time.Duration
	c := &cobra.Command{
		Use:   "create PROCESS",
		Short: "Create a link and print it once",
		Long: `Create a link to a process and print it once. With --sandbox, the argument is the id of
a sandbox, and the link shows all its processes.`,
		Args: command.IDArgs(cobra.ExactArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.ProcessIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			req := client.NewShare{Seq: seq}
			ids, target := command.ProcessIDs(), &req.Process
			if sandbox {
				ids, target = command.EverySandbox(), &req.Sandbox
			}
			if cmd.Flags().Changed("expires") {
				req.Expires = expires.String()
			}
			var made client.Share
			err = command.ByID(cmd.Context(), c, ids, args[0], func(id string) (err error) {
				*target = id
				made, err = c.CreateShare(cmd.Context(), &req)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(made)
			}
			a.Notef("link %s ends at %s: it is not shown again", made.ID, client.FormatTime(made.Expires.Time))
			_, err = fmt.Fprintln(a.Out, made.URL)
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&sandbox, "sandbox", false, "share all processes of a sandbox")
	f.Uint64Var(&seq, "seq", 0, "last event that the link shows (default all)")
	f.DurationVar(&expires, "expires", 0, "time until the link ends (default the gateway's)")
	c.MarkFlagsMutuallyExclusive("sandbox", "seq")
	return c
}

func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List links", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			all, err := c.Shares(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(all)
			}
			rows := make([][]string, len(all))
			for i, s := range all {
				last := "all"
				if s.Seq != 0 {
					last = strconv.FormatUint(s.Seq, 10)
				}
				rows[i] = []string{s.ID, s.Process + s.Sandbox, last, client.FormatTime(s.Created.Time), client.FormatTime(s.Expires.Time)}
			}
			return a.Table([]string{"ID", "SHOWS", "UP TO", "CREATED", "EXPIRES"}, rows)
		},
	}
}
