//go:build linux

package nslaunch

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A launcher that was killed after its fork has reported nothing, and its child has
// the pipe: neither side waits for the other.
func TestLauncherThatEndsEarly(t *testing.T) {
	ours, childs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer childs.Close()
	if _, err := launched(ours); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A child that cannot be monitored for lack of descriptors ends, and is reaped.
func TestChildThatCannotBeMonitoredIsReaped(t *testing.T) {
	spec, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fault, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cat, err := os.StartProcess("/bin/cat", []string{"cat"}, &os.ProcAttr{Files: []*os.File{spec}})
	if err != nil {
		t.Fatal(err)
	}
	pid := cat.Pid
	var was unix.Rlimit
	if err := errors.Join(spec.Close(), unix.Getrlimit(unix.RLIMIT_NOFILE, &was), unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max})); err != nil {
		t.Fatal(err)
	}
	err = (&Child{spec: ours, fault: fault}).watch(cat)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v", err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("not reaped: %v", err)
	}
}

func TestRangesDoNotOverlap(t *testing.T) {
	u := ForProcesses()
	seen := map[uint32]bool{}
	for range 500 { // the same id every time: the worst case
		base, err := u.Take("i1")
		if err != nil {
			t.Fatal(err)
		}
		if seen[base] || base%rangeSize != 0 || base < firstProcess || base >= lastProcess {
			t.Fatalf("base %d", base)
		}
		seen[base] = true
	}
	for base := range seen {
		u.Free(base)
	}
	if len(u.used) > 0 {
		t.Errorf("%d ranges remain", len(u.used))
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		err        error
	}{
		{"no user namespaces", "user.max_user_namespaces", &os.SyscallError{Syscall: "fork", Err: unix.EPERM}},
		{"too many user namespaces", "user.max_user_namespaces", &os.SyscallError{Syscall: "fork", Err: unix.ENOSPC}},
		{"a full disk", "no space left on device\n", &os.PathError{Op: "mkdir", Path: "upper", Err: unix.ENOSPC}},
		{"refused inside", "user.max_user_namespaces", &InitError{Text: "mount /proc: operation not permitted"}},
		{"no overlay", "overlayfs", &InitError{Text: "mount root: no such device"}},
		{"anything else", "strange", errors.New("strange")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Explain(tt.err); !strings.Contains(got.Error()+"\n", tt.want) || !errors.Is(got, tt.err) {
				t.Errorf("got %v", got)
			}
		})
	}
}
