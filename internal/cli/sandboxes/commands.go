package sandboxes

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/command"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Commands returns the commands sandbox, snapshot, cp, port-forward and codex. exec is the
// subcommand of sandbox that runs a command.
func Commands(e *command.Env, exec *cobra.Command) []*cobra.Command {
	a := &app{e}
	sandbox := a.sandboxCommand()
	sandbox.AddCommand(exec)
	return []*cobra.Command{sandbox, a.snapshotCommand(), a.copyCommand(), a.forwardCommand(), a.codexCommand()}
}
