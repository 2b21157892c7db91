// Millrace runs commands, terminals and agents in isolated sandboxes and keeps
// what they print as a durable, ordered record that any client can read from any
// place, through any gateway, at any time.
//
// This package is the front door: one program whose first argument says what it
// is. `up` is everything in one process; nats, gateway, scheduler, reaper and
// hostd are the same code apart; the other verbs are a client (internal/cli).
// Settings come from flags, then MILLRACE_* variables, then defaults.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/millrace/internal/cli"
	"github.com/millrace/millrace/services/hostd"
)

func main() {
	if inside(os.Args) {
		return
	}
	ctx, stop := untilSignal(context.Background())
	err := newRoot(process()).ExecuteContext(ctx)
	stop()
	code, say := cli.ExitCode(err)
	if say != "" {
		fmt.Fprintln(os.Stderr, "millrace:", say) //nolint:errcheck // there is nobody else to tell
	}
	os.Exit(code)
}

// process is the program's surroundings when it is the program.
func process() cli.Config {
	return cli.Config{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, LookupEnv: os.LookupEnv, Version: version(), Probe: probe, MCPGateway: hostd.MCPGateway}
}
