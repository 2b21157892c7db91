package oom_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
)

// memoryCgroup makes a memory cgroup with a limit of 16 MiB, of the version that the machine uses,
// and returns its directory and the name of its counts. It skips the test without permission.
func memoryCgroup(t *testing.T) (dir, events string) {
	t.Helper()
	for _, v := range []struct{ parent, limit, events string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"},
		{"/sys/fs/cgroup", "memory.max", "memory.events"},
	} {
		dir, err := os.MkdirTemp(v.parent, "oomtest-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			for errors.Is(unix.Rmdir(dir), unix.EBUSY) { // until its last process is gone
				runtime.Gosched()
			}
		})
		if os.WriteFile(filepath.Join(dir, v.limit), []byte("16777216"), 0) == nil {
			os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0)   // fails in version 1, or without swap
			os.WriteFile(filepath.Join(dir, "memory.swappiness"), []byte("0"), 0) // fails in version 2
			return dir, v.events
		}
	}
	t.Skip("cannot make a memory cgroup")
	return "", ""
}

// TestCounterSeesAKillOfTheKernel runs a process that needs more memory than its cgroup has.
func TestCounterSeesAKillOfTheKernel(t *testing.T) {
	dir, events := memoryCgroup(t)
	f, err := os.Open(filepath.Join(dir, events))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counter := oom.NewCounter(int(f.Fd()))
	before := counter.Kills()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// One line of 64 MiB, all of which tail must keep.
	script := "echo $$ > " + filepath.Join(dir, "cgroup.procs") + " && head -c 67108864 /dev/zero | exec tail -n 1 > /dev/null"
	out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the process does not end: %s", out)
	}
	if !counter.Attribute(before) {
		text, readErr := os.ReadFile(f.Name())
		t.Errorf("no kill was counted: %v, %q; %q, %v", err, out, text, readErr)
	}
}

func TestOpenFindsTheCountsOfItsOwnCgroup(t *testing.T) {
	fd := oom.Open()
	if fd == 0 {
		t.Skip("this process cannot see the counts of its cgroup")
	}
	defer unix.Close(fd)
	b := make([]byte, 1024)
	n, err := unix.Pread(fd, b, 0)
	if err != nil || !strings.Contains(string(b[:n]), "oom_kill ") {
		t.Errorf("%q, %v", b[:max(n, 0)], err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("processes inherit the descriptor: flags %d, %v", flags, err)
	}
}

const ownScore = "/proc/self/oom_score_adj"

// setOwnScore sets the score of the test until it ends.
func setOwnScore(t *testing.T, score string) {
	t.Helper()
	was, err := os.ReadFile(ownScore)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ownScore, []byte(score), 0); err != nil {
		t.Skipf("cannot change the score: %v", err)
	}
	t.Cleanup(func() { os.WriteFile(ownScore, was, 0) })
}

// TestChildScoreLeavesMemoryForTheShim: the children's score exceeds the shim's own by 32 MiB of
// the limit, and by 100 at least.
func TestChildScoreLeavesMemoryForTheShim(t *testing.T) {
	for _, tt := range []struct {
		name   string
		own    string
		memory uint64 // MiB
		want   string
	}{
		{"without a limit", "200", 0, "300"},
		{"with a large limit", "200", 1024, "300"},
		{"32 MiB of 64 are half", "200", 64, "700"},
		{"at most the kernel's maximum", "200", 16, "1000"},
		{"in a VM, whose shim has no score", "0", 64, ""},
		{"a shim that is protected by its own score", "-500", 64, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setOwnScore(t, tt.own)
			if got := string(oom.ChildScore(tt.memory)); got != tt.want {
				t.Errorf("score %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSetChangesAnotherProcess(t *testing.T) {
	setOwnScore(t, "7")
	for _, tt := range []struct{ name, score, want string }{
		{"a score", "321", "321"},
		{"no score", "", "7"},
	} {
		cmd := exec.CommandContext(t.Context(), "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		oom.Score(tt.score).Set(cmd.Process.Pid)
		got, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "oom_score_adj"))
		if strings.TrimSpace(string(got)) != tt.want {
			t.Errorf("%s: %q, %v; want %s", tt.name, got, err, tt.want)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	oom.Score("1").Set(1 << 30) // no such process: nothing happens
}
