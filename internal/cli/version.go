package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := a.json()
			if err != nil {
				return err
			}
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if asJSON {
				return a.writeJSON(map[string]string{"version": a.Version, "go": runtime.Version(), "platform": platform})
			}
			_, err = fmt.Fprintf(a.Out, "millrace %s (%s, %s)\n", a.Version, runtime.Version(), platform)
			return err
		},
	}
}
