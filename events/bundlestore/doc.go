// Package bundlestore stores secret bundles in the log. What it stores is the vocabulary of package
// bundle.
//
// # Messages
// The heads of a tenant's bundles are one message, which the next one replaces by compare-and-append.
// It has a random mark, so that an append whose acknowledgment was lost is not mistaken for that
// of another writer. Each value is a sealed message of its own, below its generation.
//
// # Generations
// A writer stores all values of a new generation, and then makes it valid with one append of the
// heads. Values of a generation that no head names are never read. They are removed by the writer that
// replaced the generation, or by [Store.Sweep] if that writer died.
//
// # Reading
// No view has bundles. Heads are read from the stream's leader, so that they are never older than the
// call. Values are found by the generation that a head names; if one is missing, another generation
// became valid meanwhile, and the reader starts again with the heads.
package bundlestore
