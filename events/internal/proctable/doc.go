// Package proctable is the catalog of processes as a view has it: one entry for each process,
// found by its id and its pid, listed in pages, and counted.
//
// Entries of processes that ended may be a million, and those of others are a few thousand. The
// former are encoded (package finished), and lists take a few hundred at a time: no reader holds
// the lock of the view for longer than that.
//
// # Snapshots
// [Table.SaveSnapshot] stores the state of a table, and [Table.Restore] starts an empty one from it,
// which then applies the messages after it. The result is the same as that of all messages.
package proctable
