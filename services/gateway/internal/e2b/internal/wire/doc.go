// Package wire is what the resources of E2B's API have in common: how a request is decoded, and
// the errors of what cannot be decoded.
//
// The response to an error is httperr's.
package wire
