// Command millrace-shim is the resident process of a sandbox, as a program of its
// own: small and quick to start, unlike the whole of millrace.
package main

import (
	"os"

	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/shim"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == nsinit.Arg {
		nsinit.Init(os.Args[2:]) //nolint:errcheck // the driver has the error already
		os.Exit(1)
	}
	os.Exit(shim.Main(os.Args[1:], os.Stderr))
}
