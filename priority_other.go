//go:build !linux

package main

// precede is for Linux, where drivers can start sandboxes without it.
func precede() {}

func outlive() {}
