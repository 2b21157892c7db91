//go:build freebsd || darwin

package direct

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/procstat"
)

// limit does nothing: here a process cannot limit another one.
func limit(int, *driver.Spec) error { return nil }

// environOf returns the environment that a process was started with; nil where
// it may not be read.
func environOf(pid int) []byte { return procstat.Environ(pid) }

// parentOf returns a process's parent; 0 if it has ended.
func parentOf(pid int) int {
	p, err := procstat.Find(pid)
	if err != nil {
		return 0
	}
	return p.Parent
}

// killIf kills a process if same returns true, as it did a moment before. It reports
// whether there was one to kill.
func killIf(pid int, same func(pid int) bool) bool {
	return same(pid) && unix.Kill(pid, unix.SIGKILL) == nil
}
