// Command millrace-runsc is gVisor's runsc, compiled from its Go module, so that
// the driver "gvisor" needs no download. It is a program and a module of its own, which
// keeps gVisor out of the dependencies of millrace.
//
// It has the commands of runsc that the driver uses and those with which runsc
// calls itself, and one more flag (view.go); the system call filters are precompiled
// (package filters); and it does not consume a sandbox's pending output (pipes.go).
// gVisor has no stable API: the version is pinned in go.mod, and the driver's contract
// tests show whether another one works.
package main

import (
	"fmt"
	"os"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/millrace/millrace/runsc/filters"
)

func main() {
	args, err := makeView(os.Args)
	if err == nil {
		err = onlyWrite(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "millrace-runsc:", err)
		os.Exit(1)
	}
	os.Args = args

	filters.Register()
	const group = ""
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Run):          group,
		new(cmd.Restore):      group,
		new(cmd.Checkpoint):   group,
		new(cmd.FSCheckpoint): group,
		new(cmd.Pause):        group,
		new(cmd.Resume):       group,

		new(sentrycmd.Boot):   group,
		new(sentrycmd.Umount): group,
		new(cmd.Gofer):        group,
	}, nil)
}
