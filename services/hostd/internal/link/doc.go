// Package link is hostd's end of the protocol with a shim (package wire). It treats every
// byte from a shim as hostile: sizes, tokens, seqs, offsets, streams, and which events a
// shim may send at all. Hostd may store what passes these checks.
package link
