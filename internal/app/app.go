package app

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
	"github.com/millrace/millrace/services/hostd"
)

// Main runs the program with the process's own arguments, streams, environment and
// signals, and returns its exit code.
func Main(ctx context.Context) int {
	ctx, stop := untilSignal(ctx)
	err := newRoot(process()).ExecuteContext(ctx)
	stop()
	code, message := output.ExitCode(err)
	if message != "" {
		fmt.Fprintln(os.Stderr, "millrace:", message)
	}
	return code
}

// process returns the configuration from the process's own streams and environment.
func process() command.Config {
	return command.Config{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, LookupEnv: os.LookupEnv, Version: version(), Probe: probe, Examine: examine, Confine: hostd.CheckConfinement, MCPGateway: hostd.MCPGateway}
}
