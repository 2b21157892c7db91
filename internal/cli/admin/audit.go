package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/internal/cli/client"
)

func (a *app) auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "List and verify denied requests",
		Long: `List and verify the audit trail: requests to accounts that were denied.

Each run of a gateway writes a chain of entries, in which each has the hash of the
one before.`,
	}
	c.AddCommand(a.auditList(), a.auditVerify())
	return c
}

// links calls do with each entry of the audit trail, oldest first, after checking its hashes.
func links(ctx context.Context, c *client.Client, do func(*audit.Entry) error) (*audit.Verifier, error) {
	v := &audit.Verifier{}
	for from := uint64(0); ; {
		var page struct {
			Links []audit.Link
			Next  uint64
		}
		path := "/v1/audit?from=" + strconv.FormatUint(from, 10)
		if _, err := c.Call(ctx, &client.Request{Method: "GET", Path: path}, &page); err != nil {
			return v, err
		}
		for i := range page.Links {
			e, err := v.Add(&page.Links[i])
			if err == nil {
				err = do(&e)
			}
			if err != nil {
				return v, err
			}
		}
		if len(page.Links) == 0 {
			return v, nil
		}
		from = page.Next
	}
}

func (a *app) auditList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List denied requests, oldest first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			var rows [][]string
			_, err = links(cmd.Context(), c, func(e *audit.Entry) error {
				if asJSON {
					return a.WriteJSON(e)
				}
				rows = append(rows, []string{
					client.FormatTime(e.Time), e.Event, strconv.Itoa(e.Status), e.Method + " " + e.Path, orDash(e.Tenant), orDash(e.Owner), orDash(e.Source), strconv.Itoa(e.Count),
				})
				return nil
			})
			if err != nil || asJSON {
				return err
			}
			return a.Table([]string{"TIME", "EVENT", "STATUS", "REQUEST", "TENANT", "OWNER", "SOURCE", "COUNT"}, rows)
		},
	}
}

func (a *app) auditVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Verify the hashes of the audit trail",
		Long: `Verify the hashes of the audit trail. It fails if an entry inside a chain was changed,
removed or inserted. It prints the end of each chain: store it elsewhere to find out
later whether the last entries were removed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			v, err := links(cmd.Context(), c, func(*audit.Entry) error { return nil })
			if err != nil {
				return err
			}
			if asJSON {
				return a.WriteJSON(v)
			}
			names := make([]string, 0, len(v.Chains))
			for name := range v.Chains {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				end := v.Chains[name]
				if _, err := fmt.Fprintf(a.Out, "%s entries %d to %d, end %x\n", name, end.First, end.Last, end.End); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(a.Out, "the audit trail is intact: %d entries in %d chains\n", v.Links, len(v.Chains))
			return err
		},
	}
}
