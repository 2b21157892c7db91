package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/command"
)

func versionCommand(a *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := a.JSON()
			if err != nil {
				return err
			}
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if asJSON {
				return a.WriteJSON(map[string]string{"version": a.Version, "go": runtime.Version(), "platform": platform})
			}
			_, err = fmt.Fprintf(a.Out, "millrace %s (%s, %s)\n", a.Version, runtime.Version(), platform)
			return err
		},
	}
}
