//go:build linux

package gvisor

import (
	"errors"
	"os"
	"runtime"
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

// The sandbox's process writes to the log of errors, as much as it likes.
func TestOfALongLogTheEndIsRead(t *testing.T) {
	r := &runsc{dir: t.TempDir()}
	for _, before := range []int64{0, 1, 256 << 20} {
		f, err := os.Create(r.in(errorFile))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("\n"+`{"msg":"it broke"}`+"\n"), before); err != nil {
			t.Fatal(err)
		}
		f.Close()
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		got := r.lastError()
		runtime.ReadMemStats(&is)
		if took := is.TotalAlloc - was.TotalAlloc; got != "it broke" || took > 1<<20 {
			t.Errorf("behind %d bytes: %q, with %d bytes of memory", before, got, took)
		}
	}
}
