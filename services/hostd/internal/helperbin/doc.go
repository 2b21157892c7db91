// Package helperbin finds our helper programs that hostd starts: beside this program, as a
// release has them; else in the user's cache directory, where Build has put them. Build
// needs this program's source and the Go toolchain, so that `go run . up` works without
// further steps.
//
// The name of a cached program contains a hash of its source: another version is built
// separately, and older versions stay for processes that still use them.
package helperbin
