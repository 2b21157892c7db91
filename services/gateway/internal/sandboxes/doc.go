// Package sandboxes is the /v1/sandboxes surface: it lists and shows sandboxes,
// ended ones too, and opens TCP connections to their ports.
//
// # Ended sandboxes
// A sandbox is listed for as long as its record is kept (30 days). E2B's routes,
// /sandboxes and /v2/sandboxes, list those alone that run or are paused.
//
// # Tunnels
// GET /v1/sandboxes/ID/ports/PORT with `Upgrade: tcp` switches the connection to the
// bytes of a TCP connection to that port. An end of input is passed on in both
// directions. Unlike the addresses `<port>-<id>`, a tunnel requires an API key of the
// sandbox's tenant.
package sandboxes
