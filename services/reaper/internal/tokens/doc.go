// Package tokens counts what the agents of conversations report: tokens and tool calls.
//
// # Once
// What agents print is in the records of the runtimes. The fact of a conversation has the position up to
// which they were counted. It is replaced, by compare-and-append, by one with a later position and what
// is in between. So all reapers may count, and a crash at any moment counts nothing twice and loses nothing.
//
// # Order
// The sandboxes of a conversation are counted one after another, each to the end of its runtime's record.
package tokens
