// Package share records in the log which links permit onlookers to read a terminal.
//
// # Facts
// A [Share] names one process, or one sandbox with all its processes, and belongs to a tenant. Its
// last stored message is valid, and each one replaces the one before by compare-and-append. A share
// does not depend on the gateway that made it, on the host, or on the sandbox: it is valid until it
// expires or is revoked.
//
// # Tokens
// The log has the SHA-256 of a token, never the token itself. A token has 256 random bits, so that a
// fast hash is enough.
package share
