// Package workspace keeps files that outlive sandboxes: a tenant's files of an application and a set
// of its capabilities.
//
// # Names
// A [Scope] and a [Path] come from outside and are parsed once. Subjects contain only their hashes.
//
// # Files
// A file has two parts: its bytes are an object of a random name, and an entry in the log refers to
// it. The entry is stored when all bytes are, so that an interrupted upload changes nothing. Of two
// uploads to a path the one that ends last is valid, as a whole. The bytes of a file that was replaced
// or removed are removed [Grace] later, so that readers of it can finish.
//
// # View
// A [Store] has the entries in memory, about 300 bytes per file. A change is in the view of its own
// store when the method returns, and in that of another one after its Sync.
package workspace
