// Millrace runs commands, terminals and agents in isolated sandboxes and keeps
// their output as a durable, ordered record that any client can read from any
// position, through any gateway, at any time.
//
// This package is the one program; its first argument selects the role. `up` runs
// everything in one process; nats, gateway, scheduler, reaper and hostd run the same
// code separately; the other commands are a client. Everything is in internal/app.
package main

import (
	"context"
	"os"

	"github.com/millrace/millrace/internal/app"
)

func main() {
	if app.RunHelper(os.Args) {
		return
	}
	os.Exit(app.Main(context.Background()))
}
