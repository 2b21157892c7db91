// Package drivers has the drivers that a host offers: it builds and probes them, remembers their
// capabilities for the next run, and adds the one that may have to be built first.
//
// # Concurrency
// A [Registry] is safe for concurrent use. Open or Restore is called once, and Settle once after
// that.
package drivers
