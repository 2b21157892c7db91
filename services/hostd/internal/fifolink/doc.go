// Package fifolink makes connections out of one byte stream that cannot be reopened, such as
// a pair of FIFOs or a virtio-serial port. Hostd dials, the shim listens. There is one
// connection at a time: a new one ends the previous one.
//
// # Guarantees
// Bytes of the stream arrive in order, but each end may be killed in the middle of a write.
// Data in transit may be lost when an end disappears, or when a machine is restored from a
// snapshot. A connection hides none of that: the bytes written to it are read from the same
// connection, in order and without gaps, or the connection ends.
//
// # Records
// A record is a kind, a length, a CRC-32C and data. Each sum continues that of the previous
// record, so that a lost, repeated or foreign record is as invalid as a truncated one. A
// record is delivered when it is complete and valid.
//
// # Handshake
// The dialer writes 2 * maxRecord zeroes, of which a truncated record may consume the first
// half, and a sync with a fresh nonce. The listener accepts a sync only after maxRecord
// consecutive zeroes, more than any record has: data that looks like a sync is not taken
// for one. It answers with the nonce, and the dialer skips everything before the answer,
// which cannot be forged in advance.
//
// The zeroes cost 64 KiB per Dial. There are no other limits on time or size: a slow reader
// blocks the writer at the other end, as in any pipe.
package fifolink
