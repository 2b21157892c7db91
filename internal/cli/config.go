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

// Config holds what the commands need from the program around them. In, Out, Err and
// LookupEnv are required.
type Config struct {
	In        io.Reader
	Out       io.Writer
	Err       io.Writer
	LookupEnv func(string) (string, bool)
	Version   string
	// Probe tests the drivers of this machine, for doctor.
	Probe func(ctx context.Context) []DriverReport
	// MCPGateway returns the path of the program that template build installs as
	// mcp-gateway; it reports its progress by tell.
	MCPGateway func(ctx context.Context, tell func(msg string, args ...any)) (string, error)
}

// Getenv returns the value of an environment variable, or "" if it is not set.
func (c Config) Getenv(name string) string {
	value, _ := c.LookupEnv(name)
	return value
}

// DriverReport reports whether a driver works on this machine.
type DriverReport struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // capabilities, or why the driver does not work
}

// Exit codes of Millrace itself.
const (
	ExitMillrace = 125 // Millrace failed, the command did not
	exitSignal   = 128 // plus the signal's number
)

// ExitError makes the program exit with Code. Err is printed unless it is nil: a remote
// command that fails has printed its own error.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err, or the exit status if Err is nil.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code for err and the message to print; the message may be
// empty.
func ExitCode(err error) (code int, message string) {
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

// millraceError wraps an error of Millrace, as opposed to the command's, with its exit code.
func millraceError(err error) error {
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &ExitError{Code: ExitMillrace, Err: err}
}

// millraceArgs gives a wrong command line Millrace's own exit code, so that callers of run do
// not take it for the command's. millraceFlags does the same for flags.
func millraceArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return millraceError(check(cmd, args)) }
}

// ids checks arguments that are ids or names: an empty one would turn the request path
// into that of another resource.
func ids(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return err
		}
		for _, s := range args {
			if s == "" || s == "." || s == ".." {
				return fmt.Errorf("%q is not a valid id or name: usage: %s", s, cmd.UseLine())
			}
		}
		return nil
	}
}

// countedArgs adds the usage to the error for a wrong number of arguments.
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

func millraceFlags(_ *cobra.Command, err error) error { return millraceError(FlagError(err)) }

// app is one run of the program: its configuration and the flags of all commands.
type app struct {
	Config
	url, key, data string
	output         string
}

// Commands returns the client commands. They may be added to a root command of any name.
func Commands(cfg Config) []*cobra.Command {
	a := &app{Config: cfg}
	all := []*cobra.Command{
		a.runCommand(), a.attachCommand(), a.psCommand(), a.logsCommand(), a.killCommand(),
		a.sandboxCommand(), a.templateCommand(), a.hostsCommand(), a.hostCommand(), a.snapshotCommand(), a.copyCommand(), a.forwardCommand(), a.keyCommand(), a.eventsCommand(), a.doctorCommand(), a.benchCommand(), a.versionCommand(),
	}
	for _, c := range all {
		f := c.PersistentFlags()
		f.StringVar(&a.url, "url", "", "gateway URLs, separated by commas (default $MILLRACE_URL, else from the data directory)")
		f.StringVar(&a.key, "api-key", "", "API key (default $MILLRACE_API_KEY, else from the data directory)")
		f.StringVar(&a.data, "data", "", "data directory of a local millrace up (default $MILLRACE_DATA, else the user's state directory)")
		f.StringVarP(&a.output, "output", "o", "table", "output format: table or json")
		silenceUsage(c)
	}
	return all
}

// silenceUsage disables the usage text after errors.
func silenceUsage(c *cobra.Command) {
	c.SilenceUsage = true
	if c.Args != nil {
		c.Args = countedArgs(c.Args)
	}
	for _, sub := range c.Commands() {
		silenceUsage(sub)
	}
}

// json reports whether --output asks for JSON.
func (a *app) json() (bool, error) {
	switch a.output {
	case "json":
		return true, nil
	case "", "table":
		return false, nil
	}
	return false, fmt.Errorf("--output %q must be table or json", a.output)
}

// open returns the client and whether --output asks for JSON.
func (a *app) open() (c *client, asJSON bool, err error) {
	if asJSON, err = a.json(); err == nil {
		c, err = a.client()
	}
	return c, asJSON, err
}

// notef prints a message to standard error. Its text is sanitized: it may quote untrusted
// sources.
func (a *app) notef(format string, args ...any) {
	fmt.Fprintf(a.Err, "millrace: %s\n", plain(fmt.Sprintf(format, args...))) //nolint:errcheck // there is nowhere else to report it
}

// Files in the data directory by which commands find the local `up`.
const (
	KeyFile     = "key"     // first API key; mode 0600
	AddressFile = "address" // URL of the gateway
)

// DataDir returns the default data directory: MILLRACE_DATA, else millrace in the
// XDG state directory.
func DataDir(getenv func(string) string) (string, error) {
	if d := getenv("MILLRACE_DATA"); d != "" {
		return d, nil
	}
	if d := getenv("XDG_STATE_HOME"); filepath.IsAbs(d) { // the specification ignores relative paths
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
