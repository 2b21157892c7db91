// Millrace runs commands, terminals and agents in isolated sandboxes and keeps
// their output as a durable, ordered record that any client can read from any
// position, through any gateway, at any time.
//
// This package is the one program; its first argument selects the role. `up` runs
// everything in one process; nats, gateway, scheduler, reaper and hostd run the same
// code separately; the other commands are a client (internal/cli). Settings come from
// flags, then MILLRACE_* variables, then defaults.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/millrace/internal/cli"
	"github.com/millrace/millrace/services/hostd"
)

func main() {
	if runHelper(os.Args) {
		return
	}
	ctx, stop := untilSignal(context.Background())
	err := newRoot(process()).ExecuteContext(ctx)
	stop()
	code, message := cli.ExitCode(err)
	if message != "" {
		fmt.Fprintln(os.Stderr, "millrace:", message) //nolint:errcheck // there is nowhere else to report it
	}
	os.Exit(code)
}

// process returns the configuration from the process's own streams and environment.
func process() cli.Config {
	return cli.Config{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, LookupEnv: os.LookupEnv, Version: version(), Probe: probe, MCPGateway: hostd.MCPGateway}
}
