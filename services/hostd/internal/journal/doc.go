// Package journal stores what a host needs after a restart and the log does not have: the position
// in its commands, its epoch, and by which driver and from which trees each sandbox was created.
//
// # Concurrency
// A [Journal] is safe for concurrent use by one process. Each change is durable when its method
// returns; concurrent changes of sandboxes share a sync.
package journal
