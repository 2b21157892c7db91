//go:build linux

package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// The pid of an ended process may belong to another process, which runs another program.
func TestProgramIgnoresAReusedPID(t *testing.T) {
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
	b := &instance{Instance: &live.Instance{State: live.State{PID: os.Getpid()}, Proc: proc}}
	if f, err := b.program(); !errors.Is(err, errGone) {
		t.Errorf("got %v, %v", f, err)
	}
}

// The sandbox's process may write any amount to the error log.
func TestLastErrorReadsOnlyTheEndOfTheLog(t *testing.T) {
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
			t.Errorf("after %d bytes: %q, with %d bytes of memory", before, got, took)
		}
	}
}

// A command that starts while its sandbox is being removed leaves nothing behind.
func TestCallLeavesNothing(t *testing.T) {
	path, err := testConfig(t).Runsc()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	r := &runsc{id: sandbox.NewID(), dir: t.TempDir()}
	err = r.call(t.Context(), program, "checkpoint", "--image-path="+filepath.Join(t.TempDir(), "image"), string(r.id))
	if err == nil || !strings.Contains(err.Error(), "loading container") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(r.dir); len(left) > 0 || err != nil {
		t.Errorf("left over: %v, %v", left, err)
	}
}
