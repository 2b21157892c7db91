// Package sandboxes serves /v1/store/sandboxes: it lists and shows sandboxes, including ended
// ones, and opens TCP connections to their ports.
//
// # Ended sandboxes
// A sandbox is listed for as long as its record is kept (30 days). E2B's routes,
// /sandboxes and /v2/sandboxes, list only running and paused ones.
//
// # Tunnels
// GET /v1/store/sandboxes/ID/ports/PORT with `Upgrade: tcp` switches the connection to a TCP
// connection to that port. An end of input is forwarded in both directions. Unlike the
// addresses `<port>-<id>`, a tunnel requires an API key of the sandbox's tenant.
package sandboxes
