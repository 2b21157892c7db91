// Package serial makes connections out of one byte stream that cannot be opened
// anew, such as a pair of FIFOs or a virtio-serial port. Hostd dials, the shim
// listens. There is one connection at a time: a new one ends the one before.
//
// # What the stream may do
// Bytes arrive in order, but each end may be killed in the middle of a write, and
// what is on its way may get lost when an end goes, or when a machine is restored
// from a snapshot. Nothing of that shows in a connection: what was written in one
// is read in the same, in order and without a hole, or the connection ends.
//
// # Records
// A record is a kind, a length, a CRC-32C and data. Each sum goes on from that of
// the record before, so that a lost, repeated or foreign record is as wrong as a
// cut one. It is handed on when it is whole and right.
//
// # How a connection begins
// The dialer writes 2 * maxRecord zeroes, of which a record that was cut off
// before may eat the first half, and a sync with a fresh nonce. The listener takes
// a sync only after maxRecord zeroes in a row, and no record has as many: data
// that looks like a sync is none. It answers with the nonce, and the dialer skips
// all that comes before the answer, which nobody could have known.
//
// The zeroes cost 64 KiB a Dial. There are no other limits on time or size: who
// does not read stops the writer at the other end, as in any pipe.
package serial
