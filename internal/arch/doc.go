// Package arch contains the tests of the repository's structure and language: allowed
// imports, sizes of files, functions, types and packages, one package doc per package, no
// init, no mutable globals, no sleeps in tests, plain English. It has no code.
package arch
