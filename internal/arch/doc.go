// Package arch holds the tests that keep the house as it was drawn: who may
// import whom, one package doc a package, no large files, no init, no mutable
// globals, no sleeping tests. It has no code.
package arch
