// Package link is hostd's end of the talk with a shim (package wire). It treats
// every byte that comes from there as hostile: sizes, tokens, seqs, offsets,
// streams, and which events a shim may make at all. What it hands on, hostd may
// store.
package link
