//go:build linux

package gvisor

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// The pid of a sandbox's process that has ended is anybody's, and so is what he runs.
func TestNoProgramOfWhoHasThePIDNow(t *testing.T) {
	attr := &syscall.SysProcAttr{}
	pidfd := live.PidFD(attr)
	ended, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: attr})
	if err != nil {
		t.Fatal(err)
	}
	proc, err := live.Watch(ended, *pidfd)
	if err != nil {
		t.Fatal(err)
	}
	<-proc.Done()
	b := &box{Box: &live.Box{State: live.State{PID: os.Getpid()}, Proc: proc}}
	if f, err := b.program(); !errors.Is(err, errGone) {
		t.Errorf("got %v, %v", f, err)
	}
}
