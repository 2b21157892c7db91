// Command millrace-agent is the agent deictic. It is appended to millrace-shim, compressed: see package
// agentexec.
package main

import (
	"os"

	"github.com/millrace/millrace/services/hostd/internal/deictic"
)

func main() { os.Exit(deictic.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
