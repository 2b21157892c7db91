// Command millrace-shim is the resident process of a sandbox, as a program of its
// own: small and quick to start, unlike the whole of millrace.
package main

import (
	"os"

	"github.com/millrace/millrace/services/hostd/internal/shim"
)

func main() { os.Exit(shim.Main(os.Args[1:], os.Stderr)) }
