// Package tally shares counts of requests among gateways: each stores what it has counted in a
// period, now and then, and follows what the others store.
//
// # Precision
// A count that is not stored yet is known to its own gateway only. Counts are kept in memory and
// removed after [Keep]; a restart of the servers forgets them.
package tally
