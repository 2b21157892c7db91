//go:build freebsd || darwin

package direct

import (
	"github.com/millrace/millrace/services/hostd/internal/bsd"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// limit bounds nothing: one cannot limit another process here.
func limit(int, *driver.Spec) error { return nil }

// environOf holds the environment that a process was started with; nothing where
// it may not be read.
func environOf(pid int) []byte { return bsd.Environ(pid) }
