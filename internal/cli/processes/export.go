package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

func (a *app) exportCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "export PROCESS",
		Short: "Export a process's output as asciicast",
		Long: `Export the recorded output of a process as asciicast v2, which asciinema plays. The
data of the "o" events, joined, are the output byte for byte. An "o" event whose output
is not UTF-8 is followed by a "b" event with the exact bytes in base64.`,
		Args: command.IDArgs(cobra.ExactArgs(1)),

		ValidArgsFunction: a.CompleteArgs(command.ProcessIDs(), 1),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.export(cmd.Context(), args[0], file) },
	}
	c.Flags().StringVarP(&file, "output", "o", "", "file to write (default standard output)")
	return c
}

func (a *app) export(ctx context.Context, id, file string) error {
	c, _, err := a.Open()
	if err != nil {
		return err
	}
	write := func(to io.Writer) error {
		return command.ByID(ctx, c, command.ProcessIDs(), id, func(id string) error { return download(ctx, c, id, to) })
	}
	if file == "" {
		if out, ok := a.Out.(*os.File); ok && output.IsTerminal(out) {
			return errors.New("a recording is not written to a terminal: set --output")
		}
		return write(a.Out)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".export-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	err = errors.Join(write(part), part.Close())
	if err != nil {
		return err
	}
	return os.Rename(part.Name(), file)
}

// broken begins the data of the event at the end of an export that was broken off.
const broken = `"m", "incomplete: `

// download writes an export, and returns an error if it is not complete.
func download(ctx context.Context, c *client.Client, id string, to io.Writer) error {
	resp, err := c.Open(ctx, &client.Request{Method: http.MethodGet, Path: "/v1/processes/" + id + "/export.cast"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var end lastBytes
	if _, err := io.Copy(io.MultiWriter(to, &end), resp.Body); err != nil {
		return fmt.Errorf("read export: %w", client.WithMessage(err))
	}
	if bytes.Contains(end, []byte(broken)) {
		return errors.New("the gateway stopped before the export was complete: try again")
	}
	return nil
}

// lastBytes holds the last bytes written to it.
type lastBytes []byte

// Write keeps the end of p.
func (l *lastBytes) Write(p []byte) (int, error) {
	const most = 128
	*l = append(*l, p[max(0, len(p)-most):]...)
	*l = append((*l)[:0], (*l)[max(0, len(*l)-most):]...)
	return len(p), nil
}
