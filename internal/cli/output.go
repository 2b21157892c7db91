package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// writeJSON writes v as indented JSON; it is the command's only data.
func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(newOutput(a.Out)) // JSON does not escape C1 controls
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// lineEach writes a line for each element of all.
func lineEach[T any](a *app, all []T, of func(*T) string) error {
	for i := range all {
		if _, err := fmt.Fprintln(a.Out, of(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

// table writes rows in columns under a header.
func (a *app) table(head []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t")) //nolint:errcheck // Flush reports it
	for _, r := range rows {
		for i := range r {
			r[i] = printable(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t")) //nolint:errcheck // Flush reports it
	}
	return w.Flush()
}

// printable replaces control characters in a name, because names come from untrusted
// sources.
func printable(s string) string { return strings.Map(printableRune, s) }

func printableRune(r rune) rune {
	if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return '\ufffd'
	}
	return r
}

// plain is printable for multi-line text.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return r
		}
		return printableRune(r)
	}, s)
}

// age formats the time since t in one suitable unit.
func age(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	d := now.Sub(*t)
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// paint colours s if w is a terminal and NO_COLOR (no-color.org) is not set.
func (a *app) paint(w io.Writer, colour, s string) string {
	f, ok := w.(*os.File)
	if !ok || a.Getenv("NO_COLOR") != "" || a.Getenv("TERM") == "dumb" || !isTerminal(f) {
		return s
	}
	return colour + s + "\x1b[0m"
}

const (
	red  = "\x1b[31m"
	dim  = "\x1b[2m"
	bold = "\x1b[1m"
)
