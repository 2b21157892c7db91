package sandboxes

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

func (a *app) sandboxCommand() *cobra.Command {
	c := &cobra.Command{Use: "sandbox", Aliases: []string{"sbx"}, Short: "Create, list, use and remove sandboxes"}
	c.AddCommand(a.sandboxCreate(), a.sandboxList(), a.sandboxShow(), a.sandboxRemove(), a.sandboxPause(), a.sandboxResume(),
		a.sandboxSnapshot(), a.sandboxFork())
	return c
}

func (a *app) sandboxCreate() *cobra.Command {
	var template string
	var timeout, hardEnd, warning time.Duration
	var metadata, env []string
	var spec client.SandboxSpec
	var resume bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a sandbox and print its id",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			spec.TemplateID = template
			if !(spec.CPUs >= 0) || math.IsInf(spec.CPUs, 0) { // false for NaN too; JSON can encode neither
				return fmt.Errorf("--cpus %v must be a finite number, 0 or more", spec.CPUs)
			}
			spec.HardEnd, spec.Warning = client.Ceil(hardEnd, time.Second), client.Ceil(warning, time.Second)
			if resume {
				spec.AutoResume = &client.AutoResume{Enabled: true}
			}
			if spec.Metadata, err = command.Pairs(metadata); err != nil {
				return err
			}
			if spec.EnvVars, err = command.Pairs(env); err != nil {
				return err
			}
			var made client.CreatedSandbox
			err = client.AtMost(timeout, cmd.Flags().Changed("timeout"), func(most time.Duration) (err error) {
				spec.Timeout = client.Ceil(most, time.Second)
				made, err = c.CreateSandbox(cmd.Context(), spec)
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.WriteJSON(newSandbox(made))
			}
			_, err = fmt.Fprintln(a.Out, made.ID)
			return err
		},
	}
	c.Flags().StringVar(&template, "template", "base", "template of the root file system")
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "time until the sandbox ends; the default is capped by the gateway")
	c.Flags().DurationVar(&hardEnd, "hard-end", 0, "time until the sandbox ends in any case, also while it is paused (default none)")
	c.Flags().DurationVar(&warning, "hard-end-warning", 0, "time before the hard end at which the sandbox's record gets a warning (default none)")
	c.Flags().StringArrayVarP(&metadata, "metadata", "m", nil, "metadata for searches, as NAME=VALUE; repeatable (default none)")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "environment variable of all processes, as NAME=VALUE; repeatable (default none)")
	c.Flags().Float64Var(&spec.CPUs, "cpus", 0, "maximum number of CPUs (default set by the server)")
	c.Flags().Uint32Var(&spec.MemoryMB, "memory", 0, "maximum memory in MiB (default set by the server)")
	c.Flags().Uint32Var(&spec.DiskMB, "disk", 0, "maximum disk space in MiB (default set by the server)")
	c.Flags().Uint32Var(&spec.PIDs, "pids", 0, "maximum number of processes (default set by the server)")
	c.Flags().StringVar(&spec.Record, "record", "", "what is kept of processes: full, meta or none (default set by the server)")
	c.Flags().StringArrayVar(&spec.Redact, "redact", nil, "pattern of what is replaced in output and commands; repeatable (default none)")
	c.Flags().StringVar(&spec.Isolation, "isolation", "", "minimum isolation: none, process, kernel or machine (default none)")
	c.Flags().BoolVar(&spec.Secure, "secure", false, "create a token for the sandbox and require it, or an API key, for files and processes")
	c.Flags().BoolVar(&spec.AutoPause, "auto-pause", false, "pause the sandbox at its timeout instead of ending it")
	c.Flags().BoolVar(&resume, "auto-resume", false, "resume the sandbox when a client uses it")
	return c
}

func (a *app) sandboxList() *cobra.Command {
	var metadata []string
	var quiet, ended bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := command.Pairs(metadata)
			if err != nil {
				return err
			}
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			states := client.LiveStates
			if ended {
				states = ""
			}
			all, err := c.Sandboxes(cmd.Context(), states, want)
			switch {
			case err != nil:
				return err
			case quiet:
				return command.LineEach(a.Env, all, func(s *client.Sandbox) string { return s.ID })
			case asJSON:
				return a.WriteJSON(all)
			}
			return a.sandboxTable(all)
		},
	}
	c.Flags().StringArrayVarP(&metadata, "metadata", "m", nil, "list only sandboxes with this metadata, as NAME=VALUE; repeatable (default all)")
	c.Flags().BoolVarP(&ended, "all", "a", false, "include ended sandboxes")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	return c
}

func (a *app) sandboxTable(all []client.Sandbox) error {
	now := time.Now()
	rows := make([][]string, len(all))
	for i, s := range all {
		state := s.State
		if s.Outcome != "" && s.Outcome != "destroyed" {
			state += ", " + s.Outcome
		}
		rows[i] = []string{s.ID, s.TemplateName(), state, output.Age(now, &s.CreatedAt.Time), left(&s, now)}
	}
	return a.Table([]string{"SANDBOX", "TEMPLATE", "STATE", "AGE", "ENDS IN"}, rows)
}

func (a *app) sandboxShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show SANDBOX",
		Short: "Show the details of a running or ended sandbox",
		Args:  command.IDArgs(cobra.ExactArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.EverySandbox(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			return command.ByID(cmd.Context(), c, command.EverySandbox(), args[0], func(id string) error {
				s, err := c.Sandbox(cmd.Context(), id)
				if err != nil {
					return err
				}
				return a.WriteJSON(s)
			})
		},
	}
}

func (a *app) sandboxRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SANDBOX...",
		Short: "Remove sandboxes and end their processes",
		Args:  command.IDArgs(cobra.MinimumNArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 0),
		RunE: a.Each(command.SandboxIDs(), func(ctx context.Context, c *client.Client, id string) error {
			return c.RemoveSandbox(ctx, id)
		}),
	}
}

// left returns the time until the sandbox ends; "-" without a deadline.
func left(s *client.Sandbox, now time.Time) string {
	if s.EndsAt.IsZero() {
		return "-"
	}
	from := now.Add(-s.EndsAt.Sub(now))
	return output.Age(now, &from)
}

// newSandbox is a created sandbox as the CLI prints it.
type newSandbox struct {
	ID           string `json:"sandbox"`
	Template     string `json:"template"`
	Alias        string `json:"alias,omitempty"`
	AccessToken  string `json:"access_token,omitempty"`
	TrafficToken string `json:"traffic_access_token,omitempty"`
	Domain       string `json:"domain,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}
