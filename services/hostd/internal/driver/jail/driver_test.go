//go:build linux

package jail

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

func onPath() map[string]string {
	names := DefaultTools()
	for name := range names {
		names[name] = name
	}
	return names
}

func newDriver(t *testing.T) *Driver {
	t.Helper()
	fakeTools(t)
	return New(Config{Pool: "tank", Tools: onPath()})
}

func TestContract(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("jails, and files of all users, require root")
	}
	fakeTools(t)
	// Each program call starts this binary, and TestEveryStep* cover all steps.
	drivertest.Scale{Creates: 25, Moments: 8}.Run(t, func(t *testing.T) driver.Driver { return newDriver(t) })
}

// testSpec returns a spec in a directory of its own; the shim is a shell script that keeps
// the socket open until it is stopped.
func testSpec(t *testing.T) driver.Spec {
	t.Helper()
	id := sandbox.ID("i1")
	dir := filepath.Join(t.TempDir(), string(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return driver.Spec{
		ID: id, Dir: dir, ShimPath: "/proc/self/exe", ShimArgs: []string{"drivertest-shim"}, Env: map[string]string{"A": "b"},
		MemoryMiB: 512, CPUMilli: 500, PIDs: 64, DiskMiB: 1024, Template: "base",
	}
}

// wantCreate returns the command lines that make the sandbox of testSpec.
func wantCreate(s *driver.Spec) []string {
	root := s.Dir + "/jail"
	return []string{
		"zfs list -H -o name tank/tpl/base",
		"zfs list -H -o name -t snapshot -s creation -d 1 tank/tpl/base",
		"zfs clone -o mountpoint=" + root + " -o setuid=off -o quota=1024M tank/tpl/base@v2 tank/run/i1",
		"jail -c name=e2b-i1 path=" + root + " host.hostname=i1 persist mount.devfs devfs_ruleset=4 children.max=0 " +
			"enforce_statfs=2 securelevel=2 exec.clean vnet exec.start=/sbin/ifconfig lo0 inet 127.0.0.1/8 up",
		"sysctl -n kern.racct.enable",
		"rctl -a jail:e2b-i1:maxproc:deny=64",
		"rctl -a jail:e2b-i1:memoryuse:deny=512m",
		"rctl -a jail:e2b-i1:pcpu:deny=50",
		"jexec -l -U root e2b-i1 /usr/bin/limits -B -n 65536 -f 1024m /usr/bin/env -i A=b HOME=/home/user LANG=C.UTF-8 LOGNAME=user " +
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SHELL=/bin/sh USER=user /.millrace/shim drivertest-shim",
	}
}

// wantRemove returns the command lines that remove all of it.
func wantRemove(s *driver.Spec) []string {
	return []string{
		"jls -j e2b-i1 jid", "jail -r e2b-i1",
		"umount -f " + s.Dir + "/jail/dev",
		"rctl jail:e2b-i1", "rctl -r jail:e2b-i1",
		"zfs list -H -o name tank/run/i1", "zfs destroy -r tank/run/i1",
	}
}

// lines returns the calls after the first n.
func (f fake) lines(n int) []string {
	var out []string
	for _, c := range f.calls()[n:] {
		out = append(out, strings.Join(c, " "))
	}
	return out
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// clean checks that nothing of the sandbox is left on the machine.
func (f fake) clean(t *testing.T, s *driver.Spec) {
	t.Helper()
	left := slices.Concat(f.all("sets", "tank/run/"), f.all("jails", ""), f.all("rules", ""))
	if len(left) > 0 {
		t.Errorf("remaining on the machine: %v", left)
	}
	if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) > 0 {
		t.Errorf("remaining in the directory: %v, %v", entries, err)
	}
}

func withLimits(t *testing.T) (fake, *Driver) {
	t.Helper()
	f := fakeTools(t)
	f.sysctl(t, "kern.racct.enable", "1")
	return f, New(Config{Pool: "tank", Tools: onPath()})
}

func TestCommandLines(t *testing.T) {
	f, d := withLimits(t)
	s := testSpec(t)
	in, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	same(t, f.lines(0), wantCreate(&s))

	n := len(f.calls())
	stats, err := in.Stats(t.Context())
	if err != nil || stats.DiskBytes < 1<<20 || stats.CPU.Seconds() != 3 || stats.MemoryBytes != 4096 || stats.Processes != 2 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	same(t, f.lines(n), []string{"zfs list -H -p -o used tank/run/i1", "rctl -u jail:e2b-i1"})

	n = len(f.calls())
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Kill removes the jail; the sweep after it checks that it is gone.
	want := wantRemove(&s)
	same(t, f.lines(n), slices.Insert(want, 2, "jls -j e2b-i1 jid"))
	f.clean(t, &s)

	n = len(f.calls())
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, f.lines(n), nil)
}

func TestEveryStepThatFailsIsUndone(t *testing.T) {
	s := testSpec(t)
	for _, line := range wantCreate(&s)[2:] {
		if strings.HasPrefix(line, "sysctl") {
			continue // without a result there are no limits
		}
		t.Run(line[:min(len(line), 40)], func(t *testing.T) {
			f, d := withLimits(t)
			s := testSpec(t)
			words := strings.Fields(line)
			fail := strings.Join(words[:min(len(words), 2)], " ")
			if words[0] == "rctl" {
				fail = line
			}
			if err := os.WriteFile(filepath.Join(f.dir, "fail"), []byte(fail), 0o666); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Create(t.Context(), s); err == nil || !strings.Contains(err.Error(), "set to fail") {
				t.Errorf("got %v, want the program's message", err)
			}
			f.clean(t, &s)
			if strings.HasPrefix(line, "jexec") {
				lines := f.lines(0)
				same(t, lines[len(lines)-len(wantRemove(&s)):], wantRemove(&s))
			}
		})
	}
}

// What could not be removed still exists for the next attempt.
func TestDestroyCanBeRepeatedAfterEveryStep(t *testing.T) {
	for _, fail := range []string{"jail -r", "rctl -r", "zfs destroy"} {
		t.Run(fail, func(t *testing.T) {
			f, d := withLimits(t)
			s := testSpec(t)
			in, err := d.Create(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(f.dir, "fail")
			if err := os.WriteFile(path, []byte(fail), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := in.Destroy(t.Context()); err == nil {
				t.Error("destroy succeeded although a step failed")
			}
			if ids, err := d.List(t.Context(), filepath.Dir(s.Dir)); err != nil || !slices.Equal(ids, []sandbox.ID{s.ID}) {
				t.Errorf("listed: %v, %v", ids, err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := in.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
			f.clean(t, &s)
		})
	}
}

func TestSnapshotAndFrom(t *testing.T) {
	f, d := withLimits(t)
	s := testSpec(t)
	in, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	if err := in.Snapshot(t.Context(), t.TempDir(), true); !kind.Is(err, kind.Unimplemented) {
		t.Errorf("with memory: %v, want Unimplemented", err)
	}
	dir, n := t.TempDir(), len(f.calls())
	if err := in.Snapshot(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, c := range f.calls()[n:] {
		verbs = append(verbs, c[0]+" "+c[1])
	}
	same(t, verbs, []string{"zfs snapshot", "zfs send", "zfs destroy"})
	if left := f.all("sets", "tank/run/i1@"); len(left) > 0 {
		t.Errorf("snapshots remain: %v", left)
	}

	fork := testSpec(t)
	fork.ID, fork.From, fork.DiskMiB = "i2", dir, 0
	n = len(f.calls())
	forked, err := d.Create(t.Context(), fork)
	if err != nil {
		t.Fatal(err)
	}
	defer forked.Destroy(context.Background())
	if got, want := f.lines(n)[0], "zfs receive -o mountpoint="+fork.Dir+"/jail -o setuid=off tank/run/i2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	if err := os.WriteFile(filepath.Join(f.dir, "fail"), []byte("zfs send"), 0o666); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	if err := in.Snapshot(t.Context(), empty, false); err == nil {
		t.Error("a snapshot that could not be sent was reported as success")
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("remaining of a failed snapshot: %v, %v", entries, err)
	}
}

func TestUnknownTemplates(t *testing.T) {
	d := newDriver(t)
	for _, name := range []string{"none", "../run", "-r", "a b", "a@b"} {
		s := testSpec(t)
		s.Template = name
		if _, err := d.Create(t.Context(), s); !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %v, want NotFound", name, err)
		}
	}
}

func TestProbeReportsWhatIsMissing(t *testing.T) {
	f := fakeTools(t)
	tools := onPath()
	tools["jexec"] = "/nonexistent/jexec"
	if _, err := New(Config{Pool: "tank", Tools: tools}).Probe(t.Context()); !kind.Is(err, kind.Unavailable) || !strings.Contains(err.Error(), "/nonexistent/jexec") {
		t.Errorf("without jexec: %v", err)
	}
	if _, err := New(Config{Pool: "other", Tools: onPath()}).Probe(t.Context()); !kind.Is(err, kind.Unavailable) || !strings.Contains(err.Error(), "other/tpl") {
		t.Errorf("without a pool: %v", err)
	}
	f.sysctl(t, "kern.features.vimage", "0")
	if _, err := New(Config{Pool: "tank", Tools: onPath()}).Probe(t.Context()); !kind.Is(err, kind.Unavailable) || !strings.Contains(err.Error(), "VIMAGE") {
		t.Errorf("a kernel without network stacks for jails: %v", err)
	}
}

// A sandbox's own tree is the initial tree of a sandbox made from it: links in place of
// the shim are not followed.
func TestInstallFollowsNoLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, link := range []string{shimDir, "other"} {
		if err := os.Symlink(outside, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := install(root, "/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("written outside: %v, %v", entries, err)
	}
	if st, err := os.Lstat(root + shimInside); err != nil || st.Mode() != 0o555 {
		t.Errorf("the shim: %v, %v", st, err)
	}
}
