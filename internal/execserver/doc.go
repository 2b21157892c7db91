// Package execserver connects clients of codex's exec-server protocol, on standard input and
// output or at an address of their own, with the endpoint of a gateway.
//
// It forwards messages and reads none of them: the protocol is the gateway's.
package execserver
