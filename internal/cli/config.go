package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Config is what the verbs need of the program around them. In, Out, Err and
// LookupEnv are required.
type Config struct {
	In        io.Reader
	Out       io.Writer
	Err       io.Writer
	LookupEnv func(string) (string, bool)
	Version   string
	// Probe tells what the drivers on this machine can do, for doctor.
	Probe func(ctx context.Context) []DriverReport
	// MCPGateway gives the path of the program that templates have as mcp-gateway,
	// for template build; tell hears of its progress.
	MCPGateway func(ctx context.Context, tell func(msg string, args ...any)) (string, error)
}

// Getenv returns the value of an environment variable, or "" if it is not set.
func (c Config) Getenv(name string) string {
	value, _ := c.LookupEnv(name)
	return value
}

// DriverReport says whether a driver works on this machine.
type DriverReport struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what it can do, or why it cannot
}

// The exit codes of our own.
const (
	ExitOurs   = 125 // Millrace failed, the command did not
	exitSignal = 128 // plus the signal's number
)

// ExitError makes the program exit with Code. Err is told to the user unless it
// is nil: a remote command that fails has said itself why.
type ExitError struct {
	Code int
	Err  error
}

// Error says what happened.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is the code the program exits with after err, and what is to be told
// of it; empty if nothing.
func ExitCode(err error) (code int, say string) {
	if err == nil {
		return 0, ""
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		if exit.Err == nil {
			return exit.Code, ""
		}
		return exit.Code, plain(exit.Err.Error())
	}
	return 1, plain(err.Error())
}

// ours gives an error that is Millrace's and not the command's its exit code.
func ours(err error) error {
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &ExitError{Code: ExitOurs, Err: err}
}

// oursArgs and oursFlags give what is wrong with a command line the code of what
// is ours: whoever reads the exit of run must not take it for the command's.
func oursArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return ours(check(cmd, args)) }
}

// ids checks arguments that are ids or names: with none in its path a request would
// ask for something else.
func ids(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return err
		}
		for _, s := range args {
			if s == "" || s == "." || s == ".." {
				return fmt.Errorf("%q is the id or name of nothing: usage: %s", s, cmd.UseLine())
			}
		}
		return nil
	}
}

// countedArgs gives a wrong number of arguments a text with the usage.
func countedArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || !strings.Contains(err.Error(), "arg(s)") { // cobra has no type for it
			return err
		}
		text := fmt.Errorf("%s cannot take %d arguments: usage: %s", cmd.Name(), len(args), cmd.UseLine())
		switch len(args) {
		case 0:
			text = fmt.Errorf("%s requires arguments: usage: %s", cmd.Name(), cmd.UseLine())
		case 1:
			text = fmt.Errorf("%s cannot take 1 argument: usage: %s", cmd.Name(), cmd.UseLine())
		}
		if exit, ok := errors.AsType[*ExitError](err); ok {
			return &ExitError{Code: exit.Code, Err: text}
		}
		return text
	}
}

func oursFlags(_ *cobra.Command, err error) error { return ours(FlagError(err)) }

// app is one run of the program: its surroundings and the flags of all verbs.
type app struct {
	Config
	url, key, data string
	output         string
}

// Commands gives the verbs. Each may be added to a root command of any name.
func Commands(cfg Config) []*cobra.Command {
	a := &app{Config: cfg}
	all := []*cobra.Command{
		a.runCommand(), a.attachCommand(), a.psCommand(), a.logsCommand(), a.killCommand(),
		a.sandboxCommand(), a.templateCommand(), a.hostsCommand(), a.hostCommand(), a.snapshotCommand(), a.copyCommand(), a.forwardCommand(), a.keyCommand(), a.eventsCommand(), a.doctorCommand(), a.benchCommand(), a.versionCommand(),
	}
	for _, c := range all {
		f := c.PersistentFlags()
		f.StringVar(&a.url, "url", "", "gateways, separated by commas (MILLRACE_URL; default: that of the data directory)")
		f.StringVar(&a.key, "api-key", "", "API key (MILLRACE_API_KEY; default: that of the data directory)")
		f.StringVar(&a.data, "data", "", "data directory of an up on this machine (MILLRACE_DATA)")
		f.StringVarP(&a.output, "output", "o", "table", "table or json")
		quiet(c)
	}
	return all
}

// quiet keeps the usage from being told to those who asked for something that
// failed.
func quiet(c *cobra.Command) {
	c.SilenceUsage = true
	if c.Args != nil {
		c.Args = countedArgs(c.Args)
	}
	for _, sub := range c.Commands() {
		quiet(sub)
	}
}

// json reports whether data is wanted as JSON.
func (a *app) json() (bool, error) {
	switch a.output {
	case "json":
		return true, nil
	case "", "table":
		return false, nil
	}
	return false, fmt.Errorf("--output %q must be table or json", a.output)
}

// open gives what a verb needs that shows what a gateway says: the client, and whether its
// output is to be JSON.
func (a *app) open() (c *client, asJSON bool, err error) {
	if asJSON, err = a.json(); err == nil {
		c, err = a.client()
	}
	return c, asJSON, err
}

// notef tells the user something that is not data. It may quote strangers.
func (a *app) notef(format string, args ...any) {
	fmt.Fprintf(a.Err, "millrace: %s\n", plain(fmt.Sprintf(format, args...))) //nolint:errcheck // there is nobody else to tell
}

// The files by which verbs find the `up` of a data directory.
const (
	KeyFile     = "key"     // the first API key; mode 0600
	AddressFile = "address" // the gateway's URL
)

// DataDir is the default data directory: MILLRACE_DATA, else millrace in the
// XDG state directory.
func DataDir(getenv func(string) string) (string, error) {
	if d := getenv("MILLRACE_DATA"); d != "" {
		return d, nil
	}
	if d := getenv("XDG_STATE_HOME"); filepath.IsAbs(d) { // a relative one is to be ignored, by the specification
		return filepath.Join(d, "millrace"), nil
	}
	home := getenv("HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", fmt.Errorf("no data directory: set --data, MILLRACE_DATA or HOME: %w", err)
		}
	}
	return filepath.Join(home, ".local", "state", "millrace"), nil
}
