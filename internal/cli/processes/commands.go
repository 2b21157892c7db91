package processes

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/command"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Commands returns the commands run, attach, ps, logs, export and kill.
func Commands(e *command.Env) []*cobra.Command {
	a := &app{e}
	return []*cobra.Command{a.runCommand(), a.attachCommand(), a.psCommand(), a.logsCommand(), a.exportCommand(), a.killCommand()}
}

// Exec returns the subcommand exec of the command sandbox.
func Exec(e *command.Env) *cobra.Command { return (&app{e}).sandboxExec() }
