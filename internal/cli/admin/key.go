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
	c := &cobra.Command{Use: "key", Short: "Create, list and revoke API keys and key pairs"}
	c.AddCommand(a.keyCreate(), a.keyList(), &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"revoke"},
		Short:   "Revoke API keys and key pairs permanently",
		Long: `Revoke API keys and key pairs permanently. Gateways reject new requests with a revoked key; open
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
	pair := false
	create := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create an API key and print it once",
		Long: `Create an API key and print it once.

With --pair, create a key pair for clients that sign their requests, such as those of
Backend.AI. It prints the access key and the secret key in one line each.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			k, err := c.CreateKey(cmd.Context(), name, pair)
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(k)
			}
			a.Notef("key %s: it is not shown again", k.ID)
			if pair {
				_, err = fmt.Fprintf(a.Out, "%s\n%s\n", k.AccessKey, k.SecretKey)
				return err
			}
			_, err = fmt.Fprintln(a.Out, k.Key)
			return err
		},
	}
	create.Flags().BoolVar(&pair, "pair", false, "create an access key and a secret key that signs requests")
	return create
}

// begin returns the characters of a key that are listed.
func begin(k *client.Key) string {
	if k.AccessKey != "" {
		return k.AccessKey
	}
	return k.Begin + "..."
}

func (a *app) keyList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List API keys and access keys",
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
				rows[i] = []string{k.ID, orDash(k.Name), begin(&k), client.FormatTime(k.CreatedAt.Time)}
			}
			return a.Table([]string{"ID", "NAME", "KEY", "CREATED"}, rows)
		},
	}
}
