// Package sidecar finds the programs of ours that hostd starts besides its own:
// beside this program, as a release has them; else in a directory of the user's
// cache, where Build has put them. Build needs the source that this program was
// built from and the Go toolchain, so that `go run . up` is all there is to do.
//
// What is in the cache is named after its source: another version is built anew,
// and the one before stays for those who still use it.
package sidecar
