//go:build freebsd || darwin

package direct

import "github.com/millrace/millrace/services/hostd/internal/bsd"

// environOf holds the environment that a process was started with; nothing where
// it may not be read.
func environOf(pid int) []byte { return bsd.Environ(pid) }
