// Package proctable is the catalog of processes as a view has it: one entry for each process,
// found by its id and its pid, listed in pages, and counted.
//
// Entries of processes that ended may be a million, and those of others are a few thousand. Only
// pages and the lists of one sandbox read the former, from copies of the trees that order them:
// no reader holds the lock of the view for longer than it takes to find an entry.
package proctable
