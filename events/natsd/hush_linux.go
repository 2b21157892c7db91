package natsd

import (
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server/pse" // has what the link leads to
)

// statFile is what NATS's server reads each second, to tell what the program uses, in every
// program that holds it and from its start on.
//
//go:linkname statFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var statFile string

// Hush ends that, as the server does what cannot read, for a program that runs no server: a
// shim wakes up for nothing else while its processes wait, and whoever may mount in a sandbox
// could have it read anything there.
//
// Only the length changes, so that whoever reads it meanwhile has it whole or empty.
//
//go:norace
func Hush() { statFile = statFile[:0] }
