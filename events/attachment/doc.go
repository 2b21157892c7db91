// Package attachment records in the log which gateway has the client of a session.
//
// # Facts
// A [Session] belongs to a client that may lose its connection and resume at any gateway. Its
// last stored message is valid, and each one replaces the one before by compare-and-append, so
// that of two gateways that attach a client at once one succeeds.
//
// # Gateways
// Each run of a gateway renews a lease. A client that is attached to a gateway whose lease has
// ended counts as detached since then. As with hosts, a lease ends only for a reader that was
// connected to the log while it was not renewed. The end is a time of the log, so
// that a gateway that starts later counts from the same moment.
//
// # Time
// When a session ends is decided by package due. Each gateway ends the sessions that are due: the
// first that appends Ending does it, and another one repeats it if the end is not stored in time.
package attachment
