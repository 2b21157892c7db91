package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/cli/command"
)

// docsCommand writes what is generated from the commands: manual pages and the reference. Users
// have both already, so that help does not list it.
func docsCommand(a *command.Env) *cobra.Command {
	var man string
	c := &cobra.Command{
		Use:    "docs",
		Short:  "Write the reference of all commands, or their manual pages",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if man == "" {
				return Reference(a.Out, c.Root())
			}
			at, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return err
			}
			prepare(c.Root())
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "MILLRACE", Section: "1", Source: "Millrace", Manual: "Millrace", Date: &at}, man)
		},
	}
	c.Flags().StringVar(&man, "man", "", "directory that receives manual pages")
	return c
}

// sourceDate returns the time that manual pages carry: seconds since 1970, or now.
func sourceDate(seconds string) (time.Time, error) {
	if seconds == "" {
		return time.Now().UTC(), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}

// prepare removes the line with the generator's date from each page.
func prepare(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// Reference writes a page in Markdown with all commands that help lists.
func Reference(w io.Writer, root *cobra.Command) error {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	text := strings.Builder{}
	text.WriteString("# Commands\n\nGenerated from the program by `millrace docs`. Each flag can be set as `MILLRACE_<NAME>`.\n")
	describe(&text, root)
	_, err = io.WriteString(w, strings.ReplaceAll(text.String(), home+"/", "~/"))
	return err
}

// ofThisMachine matches a default that another machine may not have.
var ofThisMachine = regexp.MustCompile(`default \d+ on this machine: `)

func describe(w *strings.Builder, c *cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "completion" {
			continue
		}
		fmt.Fprintf(w, "\n## %s\n%s\n", sub.CommandPath(), about(sub))
		if sub.Runnable() {
			fmt.Fprintf(w, "\n```\n%s\n```\n", sub.UseLine())
		}
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = ofThisMachine.ReplaceAllString(f.Usage, "default: ") })
		if flags := sub.LocalFlags().FlagUsagesWrapped(100); flags != "" {
			fmt.Fprintf(w, "\n```\n%s```\n", flags)
		}
		if sub.Example != "" {
			fmt.Fprintf(w, "\n```sh\n%s\n```\n", strings.TrimRight(sub.Example, "\n"))
		}
		describe(w, sub)
	}
}

func about(c *cobra.Command) string {
	if c.Long != "" {
		return strings.TrimSpace(c.Long)
	}
	return c.Short + "."
}
