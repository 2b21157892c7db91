package admin

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/command"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Commands returns the commands hosts, host, key, keyring, audit, events and doctor.
func Commands(e *command.Env) []*cobra.Command {
	a := &app{e}
	return []*cobra.Command{a.hostsCommand(), a.hostCommand(), a.keyCommand(), a.keyringCommand(), a.auditCommand(), a.eventsCommand(), a.doctorCommand()}
}
