package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/events/template"
)

func (a *app) sandboxCommand() *cobra.Command {
	c := &cobra.Command{Use: "sandbox", Aliases: []string{"sbx"}, Short: "Create, list, pause, fork and remove sandboxes"}
	c.AddCommand(a.sandboxCreate(), a.sandboxList(), a.sandboxRemove(), a.sandboxPause(), a.sandboxResume(),
		a.sandboxSnapshot(), a.sandboxFork())
	return c
}

func (a *app) sandboxCreate() *cobra.Command {
	var template string
	var timeout time.Duration
	var metadata, env []string
	var spec sandboxSpec
	var resume bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a sandbox and print its id",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := a.json()
			if err != nil {
				return err
			}
			spec.TemplateID = template
			if !(spec.CPUs >= 0) || math.IsInf(spec.CPUs, 0) { // NaN is not, either, and JSON has neither
				return fmt.Errorf("--cpus %v: a number of CPUs", spec.CPUs)
			}
			if resume {
				spec.AutoResume = &autoResume{Enabled: true}
			}
			if spec.Metadata, err = pairs(metadata); err != nil {
				return err
			}
			if spec.EnvVars, err = pairs(env); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			var id string
			var out any
			err = atMost(timeout, cmd.Flags().Changed("timeout"), func(most time.Duration) (err error) {
				if spec.Timeout = ceil(most, time.Second); asJSON {
					_, err = c.call(cmd.Context(), &request{method: "POST", path: "/sandboxes", json: spec}, &out)
				} else {
					id, err = c.createSandbox(cmd.Context(), spec)
				}
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.writeJSON(out)
			}
			_, err = fmt.Fprintln(a.Out, id)
			return err
		},
	}
	c.Flags().StringVar(&template, "template", "base", "what its root is made from")
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "when it ends, from now; the default is less where the gateway allows less")
	c.Flags().StringArrayVarP(&metadata, "metadata", "m", nil, "NAME=VALUE to find it by")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE for all its processes")
	c.Flags().Float64Var(&spec.CPUs, "cpus", 0, "the most CPUs; 0: the server's default")
	c.Flags().Uint32Var(&spec.MemoryMB, "memory", 0, "the most MiB of memory; 0: the server's default")
	c.Flags().Uint32Var(&spec.DiskMB, "disk", 0, "the most MiB of disk; 0: the server's default")
	c.Flags().Uint32Var(&spec.PIDs, "pids", 0, "the most processes; 0: the server's default")
	c.Flags().StringVar(&spec.Isolation, "isolation", "", "the least there must be: none, process, kernel or machine")
	c.Flags().BoolVar(&spec.AutoPause, "auto-pause", false, "pause it when its time has run out, instead of ending it")
	c.Flags().BoolVar(&resume, "auto-resume", false, "resume it when somebody needs it")
	return c
}

// pairs reads NAME=VALUE; none is nil.
func pairs(all []string) (map[string]string, error) {
	var out map[string]string
	for _, s := range all {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", s)
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[name] = value
	}
	return out, nil
}

func (a *app) sandboxList() *cobra.Command {
	var metadata []string
	var quiet bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := a.json()
			if err != nil {
				return err
			}
			want, err := pairs(metadata)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			all, err := allSandboxes(cmd, c, want)
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.writeJSON(all)
			}
			now := time.Now()
			rows := make([][]string, 0, len(all))
			for _, s := range all {
				if quiet {
					if _, err := fmt.Fprintln(a.Out, s.ID); err != nil {
						return err
					}
					continue
				}
				rows = append(rows, []string{s.ID, s.template(), s.State, age(now, &s.StartedAt), s.left(now)})
			}
			if quiet {
				return nil
			}
			return a.table([]string{"SANDBOX", "TEMPLATE", "STATE", "AGE", "ENDS IN"}, rows)
		},
	}
	c.Flags().StringArrayVarP(&metadata, "metadata", "m", nil, "only those with NAME=VALUE")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids")
	return c
}

// template is what people call the sandbox's template: as they asked for it, or as
// much of its id as may stand for it.
func (s *sandboxInfo) template() string {
	name := cmp.Or(s.Alias, s.TemplateID)
	if id, err := template.ParseID(name); err == nil {
		name = string(id[:templatePrefix])
	}
	return name
}

const templatePrefix = 12 // digits of a template's id that may stand for it

// allSandboxes reads the list, page by page.
func allSandboxes(cmd *cobra.Command, c *client, metadata map[string]string) ([]sandboxInfo, error) {
	q := url.Values{"limit": {"100"}}
	if len(metadata) > 0 {
		form := url.Values{}
		for k, v := range metadata {
			form.Set(url.QueryEscape(k), url.QueryEscape(v))
		}
		q.Set("metadata", form.Encode())
	}
	all := []sandboxInfo{}
	for {
		var page []sandboxInfo
		h, err := c.call(cmd.Context(), &request{method: "GET", path: "/v2/sandboxes", query: q}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next := h.Get("X-Next-Token")
		if next == "" {
			return all, nil
		}
		q.Set("nextToken", next)
	}
}

// left is how soon the sandbox ends; one that is paused does not.
func (s *sandboxInfo) left(now time.Time) string {
	if s.EndAt.IsZero() || s.State == statePaused {
		return "-"
	}
	from := now.Add(-s.EndAt.Sub(now))
	return age(now, &from)
}

func (a *app) sandboxRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SANDBOX...",
		Short: "End sandboxes with everything in them",
		Args:  ids(cobra.MinimumNArgs(1)),
		RunE: a.each(func(ctx context.Context, c *client, id string) error {
			return c.removeSandbox(ctx, id)
		}),
	}
}
