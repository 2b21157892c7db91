//go:build linux

package files

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
)

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// keepOpen makes another process, of another user if possible, keep a file open. line returns
// the file's next line as that process reads it.
func keepOpen(t *testing.T, path string) (line func() string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sh", "-c", `echo ready; while read -r _; do cat <&3; done`)
	cmd.ExtraFiles = []*os.File{f}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 4321}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	lines.ReadString('\n')
	return func() string {
		t.Helper()
		io.WriteString(in, "\n")
		s, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestWriteKeepsTheInodeOfASharedFile(t *testing.T) {
	r := newRig(t)
	r.cfg.Procs = true
	t.Run("of a file with another name", func(t *testing.T) {
		r.put(t, "home/u/linked", "old content, longer")
		if err := os.Link(r.at("home/u/linked"), r.at("home/u/other")); err != nil {
			t.Fatal(err)
		}
		if err := r.write(t, file.Request{Path: "linked", Mode: 0o600, Meta: map[string]string{"k": "v"}}, "new", true); err != nil {
			t.Fatal(err)
		}
		if got := content(t, r.at("home/u/other")); got != "new" {
			t.Errorf("content under the other name: %q", got)
		}
		if st, err := os.Stat(r.at("home/u/linked")); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
	})
	t.Run("of a file that another process has open", func(t *testing.T) {
		r.put(t, "home/u/log", "")
		was, line := inode(t, r.at("home/u/log")), keepOpen(t, r.at("home/u/log"))
		if err := r.write(t, file.Request{Path: "log"}, "first\n", true); err != nil {
			t.Fatal(err)
		}
		if got := line(); got != "first\n" {
			t.Errorf("the process reads %q", got)
		}
		if now := inode(t, r.at("home/u/log")); now != was {
			t.Errorf("inode %d, want %d", now, was)
		}
		if os.Geteuid() == 0 {
			if uid, _ := unix.SetfsuidRetUid(-1); uid != 0 {
				t.Errorf("the thread still has uid %d", uid)
			}
		}
	})
	t.Run("but not of other files", func(t *testing.T) {
		r.put(t, "home/u/plain", "old")
		f, err := os.Open(r.at("home/u/plain")) // this process serves downloads: they keep the content they started with
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := r.write(t, file.Request{Path: "plain"}, "new", true); err != nil {
			t.Fatal(err)
		}
		if old, err := io.ReadAll(f); string(old) != "old" || err != nil {
			t.Errorf("a reader sees %q, %v", old, err)
		}
	})
	if left, err := os.ReadDir(r.at("home/u")); err != nil || len(left) != 4 {
		t.Errorf("remaining %v, %v", left, err)
	}
}

// A running program cannot be overwritten: its name gets a new file.
func TestWriteReplacesARunningProgram(t *testing.T) {
	r := newRig(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, "home/u/run", string(raw))
	if err := os.Chmod(r.at("home/u/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(r.at("home/u/run"), r.at("home/u/too")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(r.at("home/u/run"), "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := r.write(t, file.Request{Path: "run"}, "new", true); err != nil {
		t.Fatal(err)
	}
	if got := content(t, r.at("home/u/run")); got != "new" {
		t.Errorf("its name has %d bytes", len(got))
	}
}
