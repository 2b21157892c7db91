// Command millrace-shim is the resident process of a sandbox, as a program of its own:
// smaller and quicker to start than all of millrace.
package main

import (
	"os"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/agentexec"
	"github.com/millrace/millrace/services/hostd/internal/convruntime"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/shim"
	"github.com/millrace/millrace/services/hostd/internal/sudo"
)

func main() {
	if sudo.Called(os.Args) {
		os.Exit(sudo.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case nsinit.Arg:
			nsinit.Init(os.Args[2:]) //nolint:errcheck // the driver has the error already
			os.Exit(1)
		case vminit.Arg:
			vminit.Init(os.Args[2:]) //nolint:errcheck // the console has the error
			os.Exit(1)
		case vminit.PackArg:
			os.Exit(vminit.Pack(os.Args[2:]))
		case bootstrap.Arg:
			os.Exit(convruntime.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case bootstrap.AgentArg:
			os.Exit(agentexec.Main(os.Args[1:], os.Stderr))
		}
	}
	os.Exit(shim.Main(os.Args[1:], os.Stderr))
}
