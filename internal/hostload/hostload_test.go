package hostload

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// state returns the state of a process and its CPU time in ticks, from /proc.
func state(t *testing.T, pid int) (state string, ticks int) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ticks, err = strconv.Atoi(f[11])
	if err != nil {
		t.Fatal(err)
	}
	return f[0], ticks
}

// await polls until done returns true; what describes the condition.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(what)
		}
	}
}

func TestLoad(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	l, err := Begin(t.Context(), 2, Count)
	if err != nil {
		t.Fatal(err)
	}
	all := func(what string, done func(state string, ticks int) bool) {
		t.Helper()
		for _, cmd := range l {
			await(t, "a program does not "+what, func() bool { return done(state(t, cmd.Process.Pid)) })
		}
	}
	all("count", func(_ string, ticks int) bool { return ticks > 1 })
	if err := l.Pause(); err != nil {
		t.Fatal(err)
	}
	all("be stopped", func(s string, _ int) bool { return s == "T" })
	if err := l.Resume(); err != nil {
		t.Fatal(err)
	}
	all("continue", func(s string, _ int) bool { return s != "T" })
	l.End()
	for _, cmd := range l {
		if _, err := os.Stat("/proc/" + strconv.Itoa(cmd.Process.Pid)); err == nil {
			t.Errorf("process %d did not end", cmd.Process.Pid)
		}
	}
}

// The children of a program are paused and end with it.
func TestLoadIncludesChildren(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	file := filepath.Join(t.TempDir(), "pid")
	l, err := Begin(t.Context(), 1, "sleep 600 & echo $! > "+file+"; wait")
	if err != nil {
		t.Fatal(err)
	}
	defer l.End()
	var pid int
	await(t, "the child did not start", func() bool {
		b, _ := os.ReadFile(file)
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	if err := l.Pause(); err != nil {
		t.Fatal(err)
	}
	await(t, "the child was not stopped", func() bool { s, _ := state(t, pid); return s == "T" })
	l.End()
	await(t, "the child did not end", func() bool { return syscall.Kill(pid, 0) != nil })
}
