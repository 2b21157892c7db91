// Package warmpool keeps instances ready where a driver takes long to create one
// (driver.Caps.WarmMiB): a create takes one with the same spec, and gives it the sandbox's host
// name where the driver supports that (driver.Renamer). The shim of a warm instance rehearses: the
// first command in an instance takes twice as long as the next.
//
// # Size
// None is created before the first sandbox with its spec, and none is kept if none was taken
// lately. Meanwhile the pool has a few of each spec, and more after many creates at once: as many
// as there were. That number halves each minute. Config.Max and Config.MemoryMiB limit all
// instances, and each spec gets an equal part of them.
//
// # Concurrency
// A [Pool] is safe for concurrent use. Run creates one instance at a time, also while instances
// are taken, but not while several sandboxes are being created.
package warmpool
