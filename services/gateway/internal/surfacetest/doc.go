// Package surfacetest is the contract that every surface's streams keep,
// whatever the protocol: Run tries an encoder against scripted records.
//
// # The contract
//   - A client that comes back at any place it was told sees each byte once, in
//     order, whatever was sent before.
//   - The exit is told once, after all output; what nobody saw is never told
//     as an exit.
//   - A hole is never silent.
//   - The last words are the last bytes, once, also in a drain, which leaves the
//     client a place to come back to.
//   - Silence is filled with keepalives when asked for, and holds no event back.
//   - A client that does not read holds one batch and nothing more.
package surfacetest
