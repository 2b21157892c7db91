// Package finished keeps the summaries of processes that ended in little memory, in the order of
// lists.
//
// A view may have a million of them. A [Set] encodes each one into a chunk, about 70 bytes that
// the garbage collector does not look into, and finds it through trees of numbers. Equal
// commands, hosts and ends are stored once per chunk. A chunk is released when all its processes
// were removed, which retention does in the order in which they ended.
//
// # Concurrency
// The caller guards a Set by a lock. An [Item] that a method returned may be decoded without it:
// what it shares with the set does not change.
package finished
