package cli

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

// keyWire is an API key as the gateway sends it; Key is set only in the response to create.
type keyWire struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	CreatedAt moment `json:"createdAt"`
	Mask      struct {
		Prefix string `json:"prefix"`
		Begin  string `json:"maskedValuePrefix"`
	} `json:"mask"`
}

// keyInfo is an API key as the CLI prints it.
type keyInfo struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Key       string `json:"key,omitempty"`
	Begin     string `json:"begin,omitempty"` // first characters of the key
	CreatedAt moment `json:"created_at"`
}

func (k *keyWire) info() keyInfo {
	return keyInfo{ID: k.ID, Name: k.Name, Key: k.Key, Begin: k.Mask.Prefix + k.Mask.Begin, CreatedAt: k.CreatedAt}
}

func (c *client) keys(ctx context.Context) ([]keyInfo, error) {
	var all []keyWire
	_, err := c.call(ctx, &request{method: "GET", path: "/api-keys"}, &all)
	out := make([]keyInfo, len(all))
	for i := range all {
		out[i] = all[i].info()
	}
	return out, err
}

func (a *app) keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Create, list and revoke API keys"}
	c.AddCommand(a.keyCreate(), a.keyList(), &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"revoke"},
		Short:   "Revoke API keys permanently",
		Long: `Revoke API keys permanently. Gateways reject new requests with a revoked key; open
streams continue. The key of the request itself cannot be revoked, so that one key
always remains.`,
		Args: ids(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.completeArgs(keyIDs(), 0),
		RunE: a.each(keyIDs(), func(ctx context.Context, c *client, id string) error {
			_, err := c.call(ctx, &request{method: "DELETE", path: "/api-keys/" + url.PathEscape(id)}, nil)
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
			c, asJSON, err := a.open()
			if err != nil {
				return err
			}
			var k keyWire
			body := map[string]string{"name": ""}
			if len(args) > 0 {
				body["name"] = args[0]
			}
			if _, err := c.call(cmd.Context(), &request{method: "POST", path: "/api-keys", json: body}, &k); err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(k.info())
			}
			a.notef("key %s: it is not shown again", k.ID)
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
			c, asJSON, err := a.open()
			if err != nil {
				return err
			}
			all, err := c.keys(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(all)
			}
			rows := make([][]string, len(all))
			for i, k := range all {
				rows[i] = []string{k.ID, orDash(k.Name), k.Begin + "...", formatTime(k.CreatedAt.Time)}
			}
			return a.table([]string{"ID", "NAME", "KEY", "CREATED"}, rows)
		},
	}
}
