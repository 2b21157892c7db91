package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/admin"
	"github.com/millrace/millrace/internal/cli/bench"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/processes"
	"github.com/millrace/millrace/internal/cli/sandboxes"
	"github.com/millrace/millrace/internal/cli/shares"
	"github.com/millrace/millrace/internal/cli/templates"
)

// Commands returns the client commands. They may be added to a root command of any name.
func Commands(cfg command.Config) []*cobra.Command {
	a := &command.Env{Config: cfg}
	all := slices.Concat(processes.Commands(a), sandboxes.Commands(a, processes.Exec(a)), admin.Commands(a),
		[]*cobra.Command{templates.Command(a), shares.Command(a), bench.Command(a), versionCommand(a), docsCommand(a)})
	for _, c := range all {
		a.Register(c)
	}
	return all
}
