// Package output has the records of a sandbox's processes. It reads their pipes and terminals,
// numbers each event and each byte of output, and keeps each event until hostd has stored it:
// in memory, or, while hostd is away or stores nothing, in a file.
//
// # Backpressure
// A pipe is not read while its output has no space, or exceeds its rate. Output beyond a quota
// is read and dropped, and its amount is recorded.
//
// # Sending
// A connection calls Collect, and is woken when there is something to collect. At most
// wire.WindowProcess bytes of a record, and wire.WindowConn bytes of all, are sent and not
// acknowledged. After Connect nothing of a record is sent until Resume.
//
// # Locks
// One mutex guards the buffer and its records. It is held for short times, never while a pipe
// is read, and nothing else is locked while it is held but what wakes the connection.
package output
