//go:build freebsd || darwin

package procs

// maxString returns 0: only all arguments and variables together have a limit.
func maxString() int { return 0 }
