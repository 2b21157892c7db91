// Package certs serves a TLS certificate from files that may change while connections use it.
//
// # Reloading
// Each handshake looks at the files and reads them again if they have changed. A pair that cannot
// be used, because only one of the files has been replaced for example, changes nothing: the pair
// before it stays, and one warning is logged. Existing connections keep the certificate that they
// began with.
package certs
