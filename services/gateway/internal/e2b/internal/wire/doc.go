// Package wire is what the resources of E2B's API have in common: how a request is decoded,
// the errors of what cannot be decoded, and the pages of lists.
//
// The response to an error is httperr's.
package wire
