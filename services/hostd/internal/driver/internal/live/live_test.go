//go:build linux

package live

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func TestLoadReturnsSavedState(t *testing.T) {
	dir := t.TempDir()
	want := State{Driver: "d", ID: "i1", PID: 7, Start: 9, Boot: "b", UIDBase: 3, Cgroups: []string{"/a", "/b"}}
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil || got.PID != 7 || got.Start != 9 || !slices.Equal(got.Cgroups, want.Cgroups) || got.UIDBase != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSavedRefusesForeignState(t *testing.T) {
	dir := t.TempDir()
	if _, err := Saved(dir, "d", "i1"); !kind.Is(err, kind.NotFound) {
		t.Errorf("no state: %v", err)
	}
	if err := (State{Driver: "d", ID: "i1"}).Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, driver string
		id           sandbox.ID
		ok           bool
	}{{"its own", "d", "i1", true}, {"another driver", "e", "i1", false}, {"another sandbox", "d", "i2", false}} {
		if _, err := Saved(dir, tt.driver, tt.id); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A state that was truncated by a loss of power is listed by every driver until one
// has removed the parts that it may have named.
func TestTruncatedStateIsRemoved(t *testing.T) {
	for name, text := range map[string]string{"truncated": `{"driver":"d","id":`, "nothing": "", "zeros": "\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "i1")
			if err := os.MkdirAll(filepath.Join(dir, "ns", "upper"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{stateFile: text, "disk": "x", "mine": "x"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if ids, err := List(root, "any"); err != nil || !slices.Equal(ids, []sandbox.ID{"i1"}) {
				t.Errorf("listed %v, %v", ids, err)
			}
			if _, err := Saved(dir, "any", "i1"); !kind.Is(err, kind.NotFound) {
				t.Errorf("attach: %v", err)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 1 || left[0].Name() != "mine" {
				t.Errorf("remaining: %v, %v", left, err)
			}
		})
	}
}

func TestListReturnsOnlyTheDriversSandboxes(t *testing.T) {
	root := t.TempDir()
	for name, driver := range map[string]string{"i1": "mine", "i2": "other", "Not-An-ID": "mine", "i4": ""} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if driver != "" {
			if err := (State{Driver: driver}).Save(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ids, err := List(root, "mine"); err != nil || !slices.Equal(ids, []sandbox.ID{"i1"}) {
		t.Errorf("got %v, %v", ids, err)
	}
}

// sleeper starts a process that is not monitored yet.
func sleeper(t *testing.T) (*exec.Cmd, State) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	start, err := StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, State{PID: cmd.Process.Pid, Start: start, Boot: boot}
}

func TestFindDistinguishesAReusedPID(t *testing.T) {
	_, s := sleeper(t)
	for _, tt := range []struct {
		name   string
		change func(*State)
		alive  bool
	}{
		{"the process itself", func(*State) {}, true},
		{"a later process with its pid", func(s *State) { s.Start++ }, false},
		{"a process of another boot", func(s *State) { s.Boot = "other" }, false},
		{"a process never started", func(s *State) { s.PID = 0 }, false},
		{"an impossible pid", func(s *State) { s.PID = 1 << 30 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s
			tt.change(&s)
			p, err := Find(s)
			if (err == nil) != tt.alive || err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, unix.EINVAL) {
				t.Fatalf("got %v", err)
			}
			if p != nil {
				select {
				case <-p.Done():
					t.Error("Done is closed while the process runs")
				default:
				}
			}
		})
	}
}

func TestKillWaitsForTheEnd(t *testing.T) {
	_, s := sleeper(t)
	p, err := Find(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if err := Kill(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if p.fd.Close() == nil {
		t.Error("pidfd still open")
	}
	if _, err := Find(s); !errors.Is(err, ErrGone) { // a zombie counts as ended
		t.Errorf("got %v, want %v", err, ErrGone)
	}
}

func TestSocketInADeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an existing socket is replaced
		l, err := Listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := Dial(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Close()
	}
	if _, err := Dial(t.Context(), dir); err == nil {
		t.Error("dial succeeded without a listener")
	}
}

func TestOnThreadKeepsTheWorkingDirectoryOfOthers(t *testing.T) {
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		err = OnThread(dir, func() error {
			if got, err := os.Readlink("/proc/thread-self/cwd"); err != nil || got != dir {
				t.Errorf("on the thread: %s, %v; want %s", got, err, dir)
			}
			return fs.ErrClosed
		})
		if !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("got %v, want f's error", err)
		}
	}
	if after, err := os.Getwd(); err != nil || after != before {
		t.Errorf("working directory %s, %v; want %s", after, err, before)
	}
	if err := OnThread(dir+"/missing", func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}
