// Package lives reads the starts and ends of processes from the catalog, in the order in which it
// stored them, from any position.
//
// # Delivery
// A reader gets each start and each end at least once, and the start of a process not after its end.
// An end stays in the catalog for the retention. The entry of a start is replaced by that of the
// end: a reader that comes later gets both with the end. A start may therefore be returned twice,
// once before and once with the end, if the reader or the [Feed] restarted in between.
//
// # Implementation
// A Feed follows the catalog and keeps the last few thousand entries in memory, which all readers
// share. A reader that is further behind reads from the log.
package lives
