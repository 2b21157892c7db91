package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/output"
)

// MillraceArgs gives a wrong command line Millrace's own exit code, so that callers of run do
// not take it for the command's.
func MillraceArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return output.MillraceError(check(cmd, args)) }
}

// IDArgs checks arguments that are ids or names: an empty one would turn the request path
// into that of another resource.
func IDArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
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
		if exit, ok := errors.AsType[*output.ExitError](err); ok {
			return &output.ExitError{Code: exit.Code, Err: text}
		}
		return text
	}
}

// MillraceFlags gives a wrong flag Millrace's own exit code.
func MillraceFlags(_ *cobra.Command, err error) error { return output.MillraceError(FlagError(err)) }

// Register adds the flags that every command has to c.
func (a *Env) Register(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&a.url, "url", "", "gateway URLs, separated by commas (default $MILLRACE_URL, else from the data directory)")
	f.StringVar(&a.key, "api-key", "", "API key (default $MILLRACE_API_KEY, else from the data directory)")
	f.StringVar(&a.data, "data", "", "data directory of a local millrace up (default $MILLRACE_DATA, else the user's state directory)")
	f.StringVarP(&a.output, "output", "o", "table", "output format: table or json")
	silenceUsage(c)
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

// Pairs parses arguments of the form NAME=VALUE; a later value replaces an earlier one. It
// returns nil if there are none.
func Pairs(args []string) (map[string]string, error) {
	var out map[string]string
	for _, s := range args {
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
