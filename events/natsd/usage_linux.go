package natsd

import (
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server/pse" // has the target of the link
)

// statFile is the file that nats-server reads each second to measure the program's resource
// use, in every program that links it, from its start on.
//
//go:linkname statFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var statFile string

// StopUsageSampling stops these reads, as unreadable files do, in a program that runs no server: a shim
// otherwise wakes up each second while its processes wait, and a process that may mount in
// a sandbox could make it read any file there.
//
// Only the length changes, so that a concurrent reader gets the whole name or none.
//
//go:norace
func StopUsageSampling() { statFile = statFile[:0] }
