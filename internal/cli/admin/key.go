package admin

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
)

func (a *app) keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Create, list and revoke API keys"}
	c.AddCommand(a.keyCreate(), a.keyList(), &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"revoke"},
		Short:   "Revoke API keys permanently",
		Long: `Revoke API keys permanently. Gateways reject new requests with a revoked key; open
streams continue. The key of the request itself cannot be revoked, so that one key
always remains.`,
		Args: command.IDArgs(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.KeyIDs(), 0),
		RunE: a.Each(command.KeyIDs(), func(ctx context.Context, c *client.Client, id string) error {
			_, err := c.Call(ctx, &client.Request{Method: "DELETE", Path: "/api-keys/" + url.PathEscape(id)}, nil)
			return err
		}),
	})
	return c
}

func (a *app) keyCreate() *cobra.Command {
	return &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create an API key and print it once",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			k, err := c.CreateKey(cmd.Context(), name)
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(k)
			}
			a.Notef("key %s: it is not shown again", k.ID)
			_, err = fmt.Fprintln(a.Out, k.Key)
			return err
		},
	}
}

func (a *app) keyList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List API keys by id, name and first characters",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			all, err := c.Keys(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(all)
			}
			rows := make([][]string, len(all))
			for i, k := range all {
				rows[i] = []string{k.ID, orDash(k.Name), k.Begin + "...", client.FormatTime(k.CreatedAt.Time)}
			}
			return a.Table([]string{"ID", "NAME", "KEY", "CREATED"}, rows)
		},
	}
}
