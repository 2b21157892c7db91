// Package session exchanges commands and events with the shims of sandboxes, and writes the records
// of their processes.
//
// # Sessions
// A [Session] is one sandbox's. It connects to the sandbox's shim again whenever the connection
// breaks: each process continues from the last event that is stored, and commands that the shim
// has not accepted are sent again. Commands wait in one queue until the shim's processes are known
// and the start of their process was sent.
//
// # Records
// Each process has one goroutine, which is the only writer of its record. A fact is
// written to the catalog and to the record at the same time; the next run, or a reaper, repairs the
// one that a killed host did not write. The shim drops an event only after both are stored.
// Every record ends in exactly one Finished.
//
// # Concurrency
// A [Host] and its sessions are safe for concurrent use; Serve is one goroutine per session. Mutexes
// are taken in this order: queue, session, the sandbox's own (Config.Ending, Config.Usable), network;
// a process's comes last.
package session
