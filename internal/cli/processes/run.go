package processes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// runFlags holds the flags of run and sandbox exec.
type runFlags struct {
	sandbox, template string
	cwd, user, tag    string
	record            string
	env               []string
	interactive, tty  bool
	noStdin, keep     bool
	detach            bool
	timeout, lifetime time.Duration
	lifetimeNamed     bool // the user set --lifetime
	json              bool // write events instead of output
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run a command and exit with its status",
		Long: `Run a command in a sandbox, with its input, output and exit code as if it ran
locally. A single argument is run by the shell; several arguments are a command
and its arguments, run without a shell.

With --output json, standard output has one JSON object per line: first the ids of
the process and the sandbox, then the process's events as in logs --json.

Without --sandbox, a sandbox is created for the command and removed afterwards. A
broken connection is resumed without losing or repeating output.

With --tty at a terminal, Ctrl-P Ctrl-Q detaches: the process keeps running until
the sandbox's --lifetime ends, the command to attach again is printed, and the exit
status is 0. Closing the terminal (SIGHUP) detaches too.`,
		Example: `  millrace run 'seq 3 | tac'
  tar c src | millrace run --sandbox i0abc -- tar x -C /work
  millrace run -it bash`,
		Args: command.MillraceArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.lifetimeNamed = cmd.Flags().Changed("lifetime")
			return output.MillraceError(a.run(cmd.Context(), &f, args))
		},
	}
	c.Flags().StringVarP(&f.sandbox, "sandbox", "s", "", "sandbox to run in (default a new one)")
	a.FlagIs(c, "sandbox", command.SandboxIDs())
	c.Flags().StringVar(&f.template, "template", "base", "template of the new sandbox")
	c.Flags().BoolVar(&f.keep, "keep", false, "keep the new sandbox after the command")
	c.Flags().DurationVar(&f.lifetime, "lifetime", time.Hour, "time until the new sandbox ends, after --detach, --keep or detaching")
	f.add(c, "print the process id and exit; the process keeps running (implies --keep)")
	return c
}

// add adds the flags that run and sandbox exec share.
func (f *runFlags) add(c *cobra.Command, detach string) {
	c.SetFlagErrorFunc(command.MillraceFlags)
	c.Flags().SetInterspersed(false)
	c.Flags().BoolVarP(&f.detach, "detach", "d", false, detach)
	c.Flags().BoolVarP(&f.interactive, "interactive", "i", false, "forward standard input (default true without --detach)")
	c.Flags().BoolVarP(&f.tty, "tty", "t", false, "allocate a terminal")
	c.Flags().BoolVarP(&f.noStdin, "no-stdin", "n", false, "do not forward standard input")
	c.Flags().StringVarP(&f.cwd, "cwd", "w", "", "working directory (default the user's home)")
	c.Flags().StringVarP(&f.user, "user", "u", "", "user of the process (default the sandbox's user)")
	c.Flags().StringArrayVarP(&f.env, "env", "e", nil, "environment variable, as NAME=VALUE, or NAME to copy the local value; repeatable (default none)")
	c.Flags().StringVar(&f.tag, "tag", "", "tag of the process, for searches (default none)")
	c.Flags().StringVar(&f.record, "record", "", "what is kept of the process: full, meta or none (default as the sandbox)")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "maximum run time; the process is then killed (default no limit)")
}

// sandboxExec returns the command `sandbox exec`: run with the sandbox as an argument.
func (a *app) sandboxExec() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "exec [flags] SANDBOX [--] COMMAND [ARG...]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox, as run --sandbox does. A single argument is run by the
shell; several arguments are a command and its arguments.`,
		Example: `  millrace sandbox exec i0abc -- ls -l /work
  millrace sandbox exec -it i0abc bash`,
		Args: command.MillraceArgs(func(cmd *cobra.Command, args []string) error {
			if err := cobra.MinimumNArgs(2)(cmd, args); err != nil {
				return err
			}
			return command.IDArgs(cobra.ExactArgs(1))(cmd, args[:1])
		}),
		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.sandbox, f.lifetime = args[0], time.Hour
			if args = args[1:]; args[0] == "--" && len(args) > 1 { // flags end at SANDBOX
				args = args[1:]
			}
			return output.MillraceError(a.run(cmd.Context(), &f, args))
		},
	}
	f.add(c, "print the process id and exit; the process keeps running")
	return c
}

// runLifetime is the timeout of a sandbox created for one command. It is extended while
// this client runs, so it bounds how long the sandbox outlives a killed client. The
// gateway may allow less.
const runLifetime = 10 * time.Minute

func (a *app) run(ctx context.Context, f *runFlags, args []string) error {
	c, asJSON, err := a.Open()
	if err != nil {
		return err
	}
	f.json = asJSON
	cmd, err := a.command(f, args)
	if err != nil {
		return err
	}
	whole := ctx // an interrupt must not abort the create: the sandbox has to be removed afterwards
	ctx, begun, stop := untilInterrupted(ctx)
	defer stop()
	o := &owned{id: f.sandbox}
	if f.sandbox == "" {
		if o, err = a.createOwned(whole, c, f); err != nil {
			return fmt.Errorf("create sandbox: %w", err)
		}
		defer func() { a.releaseOwned(ctx, c, o, f) }()
		var prolongs sync.WaitGroup
		defer prolongs.Wait() // a late extension would overwrite the timeout that disown sets
		live, stop := context.WithCancel(ctx)
		defer stop()
		id, lifetime := o.id, o.lifetime
		prolongs.Go(func() { client.ExtendTimeout(live, c, id, lifetime) })
	}
	var id string
	err = command.ByID(ctx, c, command.SandboxIDs(), o.id, func(sbx string) (err error) {
		o.id = sbx
		id, err = c.Start(ctx, sbx, cmd)
		return err
	})
	if err != nil {
		return cmp.Or(interruption(ctx), err)
	}
	begun()
	if f.json || f.detach {
		if err := a.writeStarted(started{Process: id, Sandbox: o.id}, f); err != nil || f.detach {
			return err
		}
	}
	at := attachment{tty: f.tty, stdin: cmd.Stdin, json: f.json}
	if cmd.PTY != nil {
		at.size = *cmd.PTY
	}
	err = a.attach(ctx, c, id, at)
	broken, lost := errors.AsType[*client.BrokenError](err)
	switch {
	case errors.Is(err, output.ErrDetached):
		o.kept = true
		a.noteDetached(id)
		return nil
	case lost:
		o.kept = true // the process may still run
		return broken
	case errors.Is(err, output.ErrNoReader) && f.sandbox != "":
		c.Signal(whole, id, int(unix.SIGPIPE)) //nolint:errcheck // it may have ended
	}
	return err
}

// started is the first line of a run's JSON output, and the only one of a detached run.
type started struct {
	Type    string `json:"type,omitempty"`
	Process string `json:"process"`
	Sandbox string `json:"sandbox"`
}

// writeStarted writes the ids of the started process and its sandbox.
func (a *app) writeStarted(s started, f *runFlags) error {
	if !f.json {
		_, err := fmt.Fprintln(a.Out, s.Process)
		return err
	}
	if !f.detach {
		s.Type = "process"
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return output.New(a.Out).Show(append(line, '\n'), true)
}

// owned is the sandbox of a run.
type owned struct {
	id       string
	lifetime time.Duration // timeout of a sandbox created for the run, from when it was last set
	kept     bool          // the sandbox outlives the run
}

// createOwned creates a sandbox for a run.
func (a *app) createOwned(ctx context.Context, c *client.Client, f *runFlags) (*owned, error) {
	o := &owned{kept: f.keep || f.detach}
	lifetime, named := runLifetime, false
	if o.kept {
		lifetime, named = f.lifetime, f.lifetimeNamed
	}
	var err error
	if o.id, o.lifetime, err = c.CreateFor(ctx, client.SandboxSpec{TemplateID: f.template}, lifetime, named); err == nil && f.keep && !f.detach {
		a.Notef("sandbox %s", o.id)
	}
	return o, err
}

// releaseOwned removes the sandbox created for a run, or sets the lifetime of one that is kept
// and prints it.
func (a *app) releaseOwned(ctx context.Context, c *client.Client, o *owned, f *runFlags) {
	if !o.kept {
		a.Discard(ctx, c, o.id, o.lifetime)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), command.CleanupTimeout)
	defer cancel()
	err := client.AtMost(f.lifetime, f.lifetimeNamed, func(lifetime time.Duration) error {
		err := c.SetTimeout(ctx, o.id, lifetime)
		if err == nil {
			o.lifetime = lifetime
		}
		return err
	})
	if err != nil {
		a.Notef("sandbox %s ends within %v: set its lifetime: %v", o.id, o.lifetime, err)
		return
	}
	a.Notef("sandbox %s ends in %v, at %s", o.id, o.lifetime, client.FormatTime(time.Now().Add(o.lifetime)))
}

func (a *app) command(f *runFlags, args []string) (*client.Command, error) {
	if f.lifetime <= 0 {
		return nil, fmt.Errorf("--lifetime %v must be more than 0", f.lifetime)
	}
	cmd := &client.Command{Cwd: f.cwd, User: f.user, Tag: f.tag, Record: f.record, TimeoutMS: client.Ceil(f.timeout, time.Millisecond)}
	cmd.Stdin = !f.noStdin && (!f.detach || f.interactive)
	if len(args) == 1 {
		cmd.Cmd = args[0]
	} else {
		cmd.Cmd, cmd.Args = args[0], args[1:]
	}
	for _, e := range f.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			if value, ok = a.LookupEnv(name); !ok {
				continue
			}
		}
		if cmd.Envs == nil {
			cmd.Envs = make(map[string]string)
		}
		cmd.Envs[name] = value
	}
	if !f.tty {
		return cmd, nil
	}
	cmd.PTY = &client.Winsize{Cols: 80, Rows: 24}
	if in, ok := a.In.(*os.File); ok && output.IsTerminal(in) {
		if cols, rows := output.Size(in); cols > 0 && rows > 0 {
			*cmd.PTY = client.Winsize{Cols: cols, Rows: rows}
		}
	} else if f.interactive {
		return nil, errors.New("-it requires a terminal on standard input")
	}
	if _, ok := cmd.Envs["TERM"]; !ok && a.Getenv("TERM") != "" {
		if cmd.Envs == nil {
			cmd.Envs = make(map[string]string)
		}
		cmd.Envs["TERM"] = a.Getenv("TERM")
	}
	return cmd, nil
}
