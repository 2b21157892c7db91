package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/internal/cli/output"
)

// WriteJSON writes v as indented JSON; it is the command's only data.
func (a *Env) WriteJSON(v any) error {
	enc := json.NewEncoder(output.New(a.Out)) // JSON does not escape C1 controls
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// LineEach writes a line for each element of all.
func LineEach[T any](a *Env, all []T, of func(*T) string) error {
	for i := range all {
		if _, err := fmt.Fprintln(a.Out, of(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

// Table writes rows in columns under a header.
func (a *Env) Table(head []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, r := range rows {
		for i := range r {
			r[i] = output.Printable(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// Paint colors s if w is a terminal and NO_COLOR (no-color.org) is not set.
func (a *Env) Paint(w io.Writer, color, s string) string {
	f, ok := w.(*os.File)
	if !ok || a.Getenv("NO_COLOR") != "" || a.Getenv("TERM") == "dumb" || !output.IsTerminal(f) {
		return s
	}
	return color + s + "\x1b[0m"
}

// Colors for Paint.
const (
	Dim  = "\x1b[2m"
	Bold = "\x1b[1m"
)
