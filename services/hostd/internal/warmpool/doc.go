// Package warmpool keeps instances ready where a driver takes long to create one
// (driver.Caps.Slow): a create takes one with the same spec, and another one is created when the
// machine is not busy with creates. None is created before the first sandbox with its spec, and
// none is kept if none was taken lately. The shim of a warm instance rehearses: the first command
// in an instance takes twice as long as the next.
//
// # Concurrency
// A [Pool] is safe for concurrent use. Run is one goroutine, which creates and removes the
// instances.
package warmpool
