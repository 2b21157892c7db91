//go:build amd64 || arm64

package spawn_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/spawn"
	"github.com/millrace/millrace/services/hostd/internal/spawn/spawntest"
)

const patience = time.Minute

// TestMain restarts the test binary with an ignored signal and a soft limit below the hard
// one.
func TestMain(m *testing.M) {
	const mark = "MILLRACE_TEST_SPAWN"
	if os.Getenv(mark) != fmt.Sprint(os.Getpid()) {
		os.Setenv(mark, fmt.Sprint(os.Getpid()))
		argv := append([]string{"sh", "-c", `trap "" HUP; ulimit -Sn 512; exec "$0" "$@"`}, os.Args...)
		fmt.Fprintln(os.Stderr, syscall.Exec("/bin/sh", argv, os.Environ()))
		os.Exit(1)
	}
	unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
	os.Exit(m.Run())
}

// starter starts a program and returns its pid.
type starter func(path string, argv []string, attr *syscall.ProcAttr) (int, error)

func start(s *spawn.Spawner) starter {
	return func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		c, err := s.Start(path, argv, attr, nil)
		if err != nil {
			return 0, err
		}
		if err := c.Wait(patience); err != nil {
			reap(c.PID)
			return 0, err
		}
		return c.PID, nil
	}
}

func reap(pid int) (ws syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			return ws
		}
	}
}

// run returns what a program prints and how it ends.
func run(t testing.TB, start starter, path string, argv []string, attr *syscall.ProcAttr) (output string, pid int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a := *attr
	a.Files = []uintptr{null.Fd(), w.Fd(), w.Fd()}
	if len(attr.Files) > 0 {
		a.Files = []uintptr{attr.Files[0], w.Fd(), attr.Files[2]}
	}
	pid, err = start(path, argv, &a)
	w.Close()
	if err != nil {
		return "error " + err.Error(), 0
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(string(b), reap(pid)), pid
}

func bin(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// script writes a file into a world-readable directory.
func script(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "spawn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, name)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// terminal returns the program's side of a new terminal.
func terminal(t *testing.T) uintptr {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Skip(errno)
	}
	t.Cleanup(func() { unix.Close(int(peer)) })
	return peer
}

type fact struct {
	name, path string
	argv       []string
	attr       syscall.ProcAttr
	root       bool
}

func facts(t *testing.T) []fact {
	t.Helper()
	const inspect = `cd /proc/self/fd; echo *; exec 3>&-; pwd; cut -d" " -f 1,4-7 /proc/$$/stat; echo "$0 $@"; cat /proc/$$/cmdline`
	var (
		tty      = terminal(t)
		nobody   = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65533, Groups: []uint32{65533, 7, 12}}}
		noGroups = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65533, NoSetGroups: true}}
		missing  = "/no/such/dir"
		closed   = script(t, "closed", "#!/bin/sh\n", 0o600)
		cat, sh  = bin(t, "cat"), bin(t, "sh")
		status   = []string{"cat", "/proc/self/status", "/proc/self/limits", "/proc/self/environ"}
		fds      = []string{"sh", "-c", inspect, "a", "b c", ""}
		ttys     = []string{"sh", "-c", "cut -d' ' -f 5-8 /proc/$$/stat; tty; echo > /dev/tty && echo has one"}
	)
	return []fact{
		{name: "status", path: cat, argv: status, attr: syscall.ProcAttr{Env: []string{"A=b", "C= d", ""}, Sys: &syscall.SysProcAttr{Setsid: true}}},
		{name: "descriptors", path: sh, argv: fds, attr: syscall.ProcAttr{Dir: "/usr"}},
		{name: "another directory", path: sh, argv: []string{"sh", "-c", "pwd"}, attr: syscall.ProcAttr{Dir: "/usr"}},
		{name: "a session", path: sh, argv: fds, attr: syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}}},
		{name: "a terminal", path: sh, argv: ttys,
			attr: syscall.ProcAttr{Files: []uintptr{tty, 1, tty}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true}}},
		{name: "no terminal", path: sh, argv: fds, attr: syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setctty: true}}},
		{name: "a death signal", path: cat, argv: status, attr: syscall.ProcAttr{Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}},
		{name: "a user", path: cat, argv: status, attr: syscall.ProcAttr{Dir: "/", Sys: nobody}, root: true},
		{name: "a user without setgroups", path: cat, argv: status, attr: syscall.ProcAttr{Sys: noGroups}, root: true},
		{name: "a user without permission for the program", path: closed, argv: []string{"x"}, attr: syscall.ProcAttr{Sys: nobody}, root: true},
		{name: "a user without permission for the directory", path: cat, argv: status, attr: syscall.ProcAttr{Dir: "/root", Sys: nobody}, root: true},
		{name: "no such file", path: missing, argv: []string{"x"}},
		{name: "no such directory", path: cat, argv: status, attr: syscall.ProcAttr{Dir: missing}},
		{name: "not executable", path: closed, argv: []string{"x"}},
		{name: "an empty program", path: script(t, "empty", "", 0o755), argv: []string{"x"}},
		{name: "a missing interpreter", path: script(t, "lost", "#!"+missing+"\n", 0o755), argv: []string{"x"}},
		{name: "too long", path: cat, argv: []string{"x", strings.Repeat("x", 1<<20)}},
		{name: "a zero byte", path: cat, argv: []string{"x\x00y"}},
		{name: "a zero byte in the environment", path: cat, argv: []string{"x"}, attr: syscall.ProcAttr{Env: []string{"A=\x00"}}},
	}
}

// TestSameAsForkExec: children must be as those of syscall.ForkExec. That restores the
// original descriptor limit only while the process has no Spawner, hence a process of its
// own.
func TestSameAsForkExec(t *testing.T) {
	const mark = "MILLRACE_TEST_FRESH"
	if os.Getenv(mark) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSameAsForkExec$")
		cmd.Env = append(os.Environ(), mark+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	changing := regexp.MustCompile(`(?m)^(Vm|Rss|Hugetlb|Mems|Cpus|SigQ|FDSize|.*ctxt|Ngid|x86_).*\n`)
	all := facts(t)
	ask := func(by starter) map[string]string {
		got := make(map[string]string)
		for _, f := range all {
			if !f.root || os.Geteuid() == 0 {
				output, pid := run(t, by, f.path, f.argv, &f.attr)
				got[f.name] = changing.ReplaceAllString(regexp.MustCompile(fmt.Sprintf(`\b%d\b`, pid)).ReplaceAllString(output, "PID"), "")
			}
		}
		return got
	}
	want := ask(syscall.ForkExec)
	s := spawn.New()
	got := ask(start(s))
	old := ask(start(s.WithoutClone3()))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: got %q\nwant %q", name, got[name], want[name])
		}
		if old[name] != want[name] {
			t.Errorf("%s, without clone3: got %q\nwant %q", name, old[name], want[name])
		}
	}
	for _, s := range []string{"SigBlk:\t0000000000000000", "SigCgt:\t0000000000000000", "SigIgn:\t0000000000000001", " 512 ", "A=b\x00C= d\x00\x00"} {
		if !strings.Contains(got["status"], s) {
			t.Errorf("no %q in %q", s, got["status"])
		}
	}
}

// TestProcessLimitApplies: a user at its process limit gets no more.
func TestProcessLimitApplies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	attr := &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}}
	first, err := syscall.ForkExec(bin(t, "sleep"), []string{"sleep", "1000"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	defer reap(first)
	defer syscall.Kill(first, syscall.SIGKILL)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &was); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &none); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NPROC, &was)
	want, _ := run(t, syscall.ForkExec, bin(t, "true"), []string{"true"}, attr)
	if got, _ := run(t, start(spawn.New()), bin(t, "true"), []string{"true"}, attr); got != want || got != "error "+syscall.EAGAIN.Error() {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFilesOfAnyNumber: a program's files may have any numbers, also each other's.
func TestFilesOfAnyNumber(t *testing.T) {
	s := spawn.New()
	other, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	n := other.Fd()
	for _, files := range [][]uintptr{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {1, 0, 2}, {2, 1, 0}, {n, 0, 1}, {1, n, 0}, {n, n, n}, {0, 0, n}} {
		pid, err := start(s)(bin(t, "sleep"), []string{"sleep", "1000"}, &syscall.ProcAttr{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		for i, fd := range files {
			want, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
			if got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, i)); got != want || err != nil {
				t.Errorf("%v: %d is %s, want %s; %v", files, i, got, want, err)
			}
		}
		syscall.Kill(pid, syscall.SIGKILL)
		reap(pid)
	}
}

// leased returns a script that cannot be executed until release is called.
func leased(t *testing.T) (path string, release func()) {
	t.Helper()
	path = script(t, "leased", "#!/bin/sh\nexit 7\n", 0o755)
	return path, spawntest.Lease(t, path)
}

// TestSlowExec: a delayed exec delays neither the runtime, nor Wait beyond its limit.
func TestSlowExec(t *testing.T) {
	path, release := leased(t)
	c, err := spawn.New().Start(path, []string{path}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC() // which stops the world
	if err := c.Wait(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a deadline exceeded", err)
	}
	release()
	if err := c.Wait(patience); err != nil {
		t.Error(err)
	}
	if ws := reap(c.PID); ws.ExitStatus() != 7 {
		t.Errorf("got %v, want 7", ws)
	}
}

// TestKilledBeforeExec counts as executed.
func TestKilledBeforeExec(t *testing.T) {
	path, _ := leased(t)
	c, err := spawn.New().Start(path, []string{path}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(0); err != nil {
		t.Error(err)
	}
	if ws := reap(c.PID); ws.Signal() != syscall.SIGKILL {
		t.Errorf("got %v, want SIGKILL", ws)
	}
}

// TestAbort: a child that has executed the program is not aborted; another one runs none of
// it.
func TestAbort(t *testing.T) {
	for _, delayed := range []bool{true, false} {
		path, release := leased(t)
		c, err := spawn.New().Start(path, []string{path}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a deadline exceeded", err)
		}
		if !delayed {
			release()
			if err := unix.Waitid(unix.P_PID, c.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Abort(); errors.Is(err, os.ErrDeadlineExceeded) != delayed || !delayed && err != nil {
			t.Errorf("delayed %v: %v", delayed, err)
		}
		if delayed {
			if err := c.Wait(patience); err != nil {
				t.Error(err)
			}
		}
		if ws := reap(c.PID); delayed != (ws.Signal() == syscall.SIGKILL) || !delayed && ws.ExitStatus() != 7 {
			t.Errorf("delayed %v: got %v", delayed, ws)
		}
	}
}

// TestManyStarts starts many programs at a time, during garbage collections and signals.
func TestManyStarts(t *testing.T) { manyStarts(t, spawn.New()) }

func TestManyStartsWithoutClone3(t *testing.T) { manyStarts(t, spawn.New().WithoutClone3()) }

func manyStarts(t *testing.T, s *spawn.Spawner) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	by := start(s)
	const workers, each = 8, 250
	var starts, noise sync.WaitGroup
	over := make(chan struct{})
	noise.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				syscall.Kill(os.Getpid(), unix.SIGTERM)
				runtime.GC()
			}
		}
	})
	for n := range workers {
		starts.Go(func() {
			for i := range each {
				want := fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", i))
				if got, _ := run(t, by, "/bin/sh", []string{"sh", "-c", `echo "$A"`}, &syscall.ProcAttr{Env: []string{"A=" + want}}); got != want+"\n0" {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
	starts.Wait()
	close(over)
	noise.Wait()
}

func BenchmarkStart(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	attr := &syscall.ProcAttr{Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if os.Geteuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	path := bin(b, "true")
	for _, by := range []struct {
		name  string
		start starter
	}{{"ForkExec", syscall.ForkExec}, {"Start", start(spawn.New())}} {
		b.Run(by.name, func(b *testing.B) {
			for b.Loop() {
				pid, err := by.start(path, []string{"true"}, attr)
				if err != nil {
					b.Fatal(err)
				}
				reap(pid)
			}
		})
	}
}
