//go:build linux

package drivertest

import (
	"context"
	"encoding/gob"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

const (
	self     = "/proc/self/exe"
	waitTime = time.Minute // for a machine that QEMU translates on a busy host
)

// Scale sets how often repeated tests repeat: less often where each repetition
// costs seconds.
type Scale struct {
	Creates int // instances of the test for leaks
	Moments int // points in a task at which hostd is killed
}

// Run runs the contract against the driver that newDriver makes; each call simulates a
// new run of hostd. It skips if the driver's Probe reports that it cannot work.
func Run(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	Scale{Creates: creates, Moments: moments}.Run(t, newDriver)
}

// Run is the function Run at this scale.
func (scale Scale) Run(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	runVictimTask(t, newDriver(t))
	s, caps := probed(t, newDriver)
	s.scale = scale
	for _, tt := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a command runs through the shim", s.testCommand},
		{"a connection may be dialed again", s.testRedial},
		{"it can be renamed where the pool needs it", s.testRename(caps)},
		{"the environment is the spec's and not the host's", s.testEnvironment},
		{"standard files can be opened by their paths", s.testReopenStdio},
		{"a long directory name works", s.testLongDirectory},
		{"an unknown shim leaves nothing", s.testUnknownShim},
		{"a canceled create leaves nothing", s.testCanceledCreate},
		{"a second create in a directory is a conflict", s.testSecondCreate},
		{"destroy is idempotent and leaves nothing", s.testDestroy},
		{"destroy kills what hides in sessions of its own", s.testDestroyKillsAll(caps)},
		{"done closes when the shim is killed", s.testDone},
		{"attach finds it after a restart", s.testAttach},
		{"attach sweeps what ended meanwhile", s.testAttachSweeps},
		{"attach without a sandbox is not found", s.testAttachNothing},
		{"list names running and ended sandboxes", s.testList},
		{"a create canceled at any moment leaves nothing", s.testCancelCreate},
		{"hostd killed while it creates", s.testKilled("create")},
		{"hostd killed while it destroys", s.testKilled("destroy")},
		{"creates leak nothing", s.testLeaks},
		{"two instances share no secret", s.testUniqueSecrets},
		{"a process beyond the memory limit dies alone", s.testMemoryLimit(caps)},
		{"forks end at the limit of processes", s.testProcessLimit(caps)},
		{"two spinners get no more than their share", s.testCPULimit(caps)},
		{"it can be deprioritized and restored", s.testDeprioritize},
		{"what is written ends at the limit of the disk", s.testDiskLimit(caps)},
		{"a disk without a limit is no larger than the host's", s.testDiskSize},
		{"a process cannot open more files than its limit", s.testFileLimit(caps)},
		{"a paused instance does nothing until it is resumed", s.testPause(caps)},
		{"a paused instance is attached paused", s.testAttachPaused(caps)},
		{"a paused instance can be destroyed", s.testDestroyPaused(caps)},
		{"pause, resume and destroy at the same time", s.testPauseRaces(caps)},
		{"stats report usage", s.testStats(caps)},
		{"volumes are shared and outlive it", s.testVolumes(caps)},
		{"an instance made from a snapshot has its files", s.testSnapshot(caps)},
		{"a snapshot is of one moment", s.testSnapshotIsAMoment(caps)},
		{"a snapshot of a paused instance leaves it paused", s.testSnapshotPaused(caps)},
		{"a snapshot that fails leaves nothing", s.testSnapshotFails(caps)},
		{"the configuration of a conversation is in memory only", s.testConfig(caps)},
		{"many instances from one snapshot at a time", s.testForksAtOnce(caps)},
		{"a snapshot with memory continues where it was", s.testMemorySnapshot(caps)},
		{"a snapshot with memory of a paused instance", s.testMemorySnapshotPaused(caps)},
	} {
		t.Run(tt.name, tt.run)
	}
}

// RunAttacks attacks the host from inside the driver's instances, also as root, for
// example with kill -9 -1. It is only for a driver that really isolates on this
// machine. For a driver whose tools are fakes, which Run supports, the attacks would hit
// the machine itself.
func RunAttacks(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	s, caps := probed(t, newDriver)
	if caps.Isolation == "none" {
		t.Fatal("the driver does not isolate")
	}
	for _, a := range s.attacks() {
		t.Run(a.name, a.run)
	}
}

type suite struct {
	newDriver func(*testing.T) driver.Driver
	scale     Scale
	own       bool // its instances have kernels of their own
	machine   bool // its instances are virtual machines
	unveiled  bool // its instances can read host files that only root may read, as Probe reports
}

// ownKernel reports whether a driver's instances have kernels of their own.
func ownKernel(caps driver.Caps) bool {
	return caps.Isolation == "kernel" || caps.Isolation == "machine"
}

// probed returns the suite of a driver that works here, or skips the test.
func probed(t *testing.T, newDriver func(*testing.T) driver.Driver) (*suite, driver.Caps) {
	d := newDriver(t)
	caps, err := d.Probe(t.Context())
	if err != nil {
		t.Skipf("%s does not work here: %v", d.Name(), err)
	}
	t.Logf("%s: %+v", d.Name(), caps)
	bare := slices.ContainsFunc(caps.Notes, func(n string) bool { return strings.Contains(n, "only root may read") })
	if bare && !InOverlays(t, "/usr") {
		t.Errorf("root inside could read what only the host's root may read: %v", caps.Notes)
	}
	return &suite{newDriver: newDriver, own: ownKernel(caps), machine: caps.Isolation == "machine", unveiled: bare}, caps
}

// instance is one sandbox of a test.
type instance struct {
	driver.Instance
	d    driver.Driver
	spec driver.Spec
	root string

	own      bool // it has a kernel of its own
	machine  bool // it is a virtual machine
	unveiled bool // see suite
}

// spec returns a spec in a root of its own, as hostd would make it.
func spec(t *testing.T) (driver.Spec, string) {
	t.Helper()
	root := t.TempDir()
	id := sandbox.NewID()
	dir := filepath.Join(root, string(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return driver.Spec{ID: id, Dir: dir, ShimPath: self, ShimArgs: []string{shimArg}, Sudo: true, Env: map[string]string{"FLAVOUR": "sour"}}, root
}

// create makes a sandbox and checks at the end of the test that nothing is left.
func (s *suite) create(t *testing.T, change func(*driver.Spec)) *instance {
	t.Helper()
	d := s.newDriver(t)
	sp, root := spec(t)
	if change != nil {
		change(&sp)
	}
	t.Cleanup(func() { checkClean(t, sp) }) // after Create's cleanup
	return &instance{Instance: Create(t, d, sp), d: d, spec: sp, root: root, own: s.own, machine: s.machine, unveiled: s.unveiled}
}

// Create makes an instance, which is destroyed at the end of the test.
func Create(t *testing.T, d driver.Driver, s driver.Spec) driver.Instance {
	t.Helper()
	in, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return in
}

// sh runs a shell command in the sandbox, as the shim's user.
func (b *instance) sh(t *testing.T, script string) string {
	t.Helper()
	return b.shAs(t, -1, script)
}

func (b *instance) shAs(t *testing.T, uid int, script string) string {
	t.Helper()
	r := send(t, b.Instance, request{Args: []string{"sh", "-c", script}, UID: uid})
	return strings.TrimSuffix(r.Out, "\n")
}

// Sh returns the output of a shell command that the shim of an instance runs. The instance
// must have been made with Spec.ShimArgs of Shim.
func Sh(ctx context.Context, in driver.Instance, script string) (string, error) {
	r, err := trySend(ctx, in, request{Args: []string{"sh", "-c", script}, UID: -1})
	return r.Out, err
}

// Shim makes a driver run this program as the shim of its tests.
func Shim(s *driver.Spec) { s.ShimPath, s.ShimArgs = self, []string{shimArg} }

func send(t *testing.T, in driver.Instance, req request) response {
	t.Helper()
	resp, err := trySend(t.Context(), in, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// trySend is send for goroutines other than the test's.
func trySend(ctx context.Context, in driver.Instance, req request) (response, error) {
	var resp response
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	conn, err := in.Dial(ctx)
	if err != nil {
		return resp, fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	if err := gob.NewEncoder(conn).Encode(req); err != nil {
		return resp, fmt.Errorf("ask %v: %w", req, err)
	}
	if err := gob.NewDecoder(conn).Decode(&resp); err != nil {
		return resp, fmt.Errorf("response to %v: %w", req, err)
	}
	return resp, nil
}

// checkClean reports everything of a sandbox that is left on the host.
func checkClean(t *testing.T, s driver.Spec) {
	t.Helper()
	left, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		t.Errorf("remaining in the directory: %s", e.Name())
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), string(s.ID)) {
		t.Errorf("a mount of %s remains", s.ID)
	}
	checkNoLoops(t, s.ID)
	for _, g := range cgroups(t) {
		if strings.Contains(g, string(s.ID)) {
			t.Errorf("cgroup %s remains", g)
		}
	}
	if pids := pidsWith(s.ID); len(pids) > 0 {
		t.Errorf("processes %v remain", pids)
	}
}

// checkNoLoops waits until no loop device has a file of the sandbox: the kernel
// unmounts a moment after the last process.
func checkNoLoops(t *testing.T, id sandbox.ID) {
	t.Helper()
	ours := func(file string) bool { return strings.Contains(file, string(id)) }
	if !eventually(func() bool { return !slices.ContainsFunc(loopFiles(), ours) }) {
		t.Errorf("loop devices remain: %q", loopFiles())
	}
}

// eventually polls ask until it returns true, and reports whether it did within a minute.
func eventually(ask func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitTime); !ask(); <-tick.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// loopFiles returns the files behind the host's loop devices.
func loopFiles() []string {
	found, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var all []string
	for _, f := range found {
		if b, err := os.ReadFile(f); err == nil { // it may disappear meanwhile
			all = append(all, string(b))
		}
	}
	return all
}

// cgroups lists the cgroups of the drivers, in all hierarchies.
func cgroups(t *testing.T) []string {
	t.Helper()
	var found []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if strings.HasPrefix(e.Name(), "millrace-") {
				found = append(found, filepath.Join(dir, e.Name()))
			}
			walk(filepath.Join(dir, e.Name()))
		}
	}
	walk("/sys/fs/cgroup")
	return found
}

// pidsWith returns the processes that have the sandbox's id in their environment or
// command line, which another thread shows where the first one has ended. The tests put it
// there.
func pidsWith(id sandbox.ID) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dirs := []string{filepath.Join("/proc", e.Name())}
		for _, tid := range live.Threads(pid) {
			dirs = append(dirs, filepath.Join("/proc", strconv.Itoa(tid)))
		}
		if slices.ContainsFunc(dirs, func(dir string) bool { return mentions(dir, id) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mentions reports whether a thread's environment or command line has the id.
func mentions(dir string, id sandbox.ID) bool {
	return slices.ContainsFunc([]string{"environ", "cmdline"}, func(file string) bool {
		b, err := os.ReadFile(filepath.Join(dir, file))
		return err == nil && strings.Contains(string(b), string(id))
	})
}
