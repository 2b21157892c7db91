package oom_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
)

// counts is a file with the counts of a cgroup.
type counts struct {
	t *testing.T
	f *os.File
}

func newCounts(t *testing.T, text string) counts {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory.events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c := counts{t, f}
	c.set(text)
	return c
}

// set replaces the text.
func (c counts) set(text string) {
	c.t.Helper()
	if err := c.f.Truncate(0); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.f.WriteAt([]byte(text), 0); err != nil {
		c.t.Fatal(err)
	}
}

func (c counts) counter() *oom.Counter { return oom.NewCounter(int(c.f.Fd())) }

func TestKillsReadsTheFilesOfBothVersions(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       uint64
	}{
		{"memory.events", "low 0\nhigh 1\nmax 22\noom 3\noom_kill 4\noom_group_kill 5\n", 4},
		{"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7},
		{"memory.oom_control of an old kernel", "oom_kill_disable 0\nunder_oom 0\n", 0},
		{"no number", "oom_kill many\n", 0},
		{"an empty file", "", 0},
	} {
		if got := newCounts(t, tt.text).counter().Kills(); got != tt.want {
			t.Errorf("%s: %d kills, want %d", tt.name, got, tt.want)
		}
	}
	if got := oom.NewCounter(0).Kills(); got != 0 {
		t.Errorf("without a file: %d kills", got)
	}
}

// TestEachKillIsAttributedOnce: of the processes that die of SIGKILL, as many ran out of memory
// as the kernel counts. before is the count at each process's start.
func TestEachKillIsAttributedOnce(t *testing.T) {
	c := newCounts(t, "oom_kill 5\n")
	counter := c.counter()
	attribute := func(what string, before uint64, want bool) {
		t.Helper()
		if got := counter.Attribute(before); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	attribute("kills from before the counter", 5, false)
	c.set("oom_kill 6\n")
	attribute("the first process to die", 5, true)
	attribute("the second one", 5, false)
	c.set("oom_kill 8\n")
	attribute("a process that began after both kills", 8, false)
	attribute("one from before them", 5, true)
	attribute("another one", 5, true)
	attribute("a third one", 5, false)
}

// TestKillsOfAnUnreadableFile: a descriptor that cannot be read counts nothing.
func TestKillsOfAnUnreadableFile(t *testing.T) {
	fd, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	c := oom.NewCounter(fd)
	if c.Kills() != 0 || c.Attribute(0) {
		t.Error("a directory counts kills")
	}
}
