package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/cli/output"
)

// Strict makes all command groups below c fail on an unknown subcommand, with their usage
// and similar names. Without a subcommand a group prints its help.
func Strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.HasSubCommands() && !sub.Runnable() {
			sub.Args = cobra.ArbitraryArgs
			sub.RunE = group
		}
		Strict(sub)
	}
}

func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(": did you mean %s?", strings.Join(near, " or "))
	}
	return &output.ExitError{Code: 2, Err: errors.New(text + "\n\n" + strings.TrimSpace(c.UsageString()))}
}

// forms maps types of flags to a description of their values.
var forms = map[string]string{
	"bool":     "must be true or false",
	"int":      "must be a whole number",
	"int64":    "must be a whole number",
	"uint":     "must be a whole number that is not negative",
	"uint16":   "must be a whole number from 0 to 65535",
	"uint32":   "must be a whole number that is not negative",
	"uint64":   "must be a whole number that is not negative",
	"intSlice": "must be whole numbers, separated by commas",
	"float64":  "must be a number",
	"duration": "must be a duration such as 90s, 15m or 2h",
}

// FlagError describes a flag value that cannot be parsed; it returns any other error
// unchanged.
func FlagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f := bad.GetFlag()
	return fmt.Errorf("--%s %q %s", f.Name, bad.GetValue(), Form(f, bad.Unwrap()))
}

// Form describes the values that f takes; cause is why a value was rejected.
func Form(f *pflag.Flag, cause error) string {
	if form, ok := forms[f.Value.Type()]; ok {
		return form
	}
	return fmt.Sprintf("is not valid: %v", cause)
}
