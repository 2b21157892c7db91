// Package surfacetest is the contract of every surface's streams, for all protocols:
// Run tests an encoder with scripted records.
//
// # The contract
//   - A client that resumes at any position it received sees each byte once, in order,
//     regardless of the bytes sent before.
//   - The exit is sent once, after all output; an exit that was not observed is never sent.
//   - A gap is always reported.
//   - The end of the stream is sent once, as its last bytes, also in a drain, which leaves
//     the client a position from which it can resume.
//   - Idle streams send keepalives on request, and delay no event.
//   - A client that does not read occupies at most one batch.
package surfacetest
