package drivertest

import (
	"context"
	"encoding/gob"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

const (
	self    = "/proc/self/exe"
	patient = 20 * time.Second
)

// Run runs the contract against the driver that newDriver makes; each call is a
// new life of hostd. It skips where the driver's Probe says that it cannot work.
func Run(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	d := newDriver(t)
	victim(t, d)
	caps, err := d.Probe(t.Context())
	if err != nil {
		t.Skipf("%s does not work here: %v", d.Name(), err)
	}
	t.Logf("%s: %+v", d.Name(), caps)
	s := &suite{newDriver: newDriver}
	for _, tt := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a command runs through the shim", s.runs},
		{"a connection may be dialed again", s.redials},
		{"the environment is the spec's and not the host's", s.environment},
		{"a long directory name is no obstacle", s.longDirectory},
		{"an unknown shim leaves nothing", s.badShim},
		{"a canceled create leaves nothing", s.canceled},
		{"a second create in a directory is a conflict", s.twice},
		{"destroy is idempotent and leaves nothing", s.destroys},
		{"destroy kills what hides in sessions of its own", s.killsAll},
		{"done closes when the shim is killed", s.done},
		{"attach finds it after a restart", s.attaches},
		{"attach sweeps what died meanwhile", s.sweeps},
		{"attach finds nothing where nothing is", s.attachNothing},
		{"list names living and dead", s.lists},
		{"hostd killed while it creates", s.killed("create")},
		{"hostd killed while it destroys", s.killed("destroy")},
		{"fifty creates leak nothing", s.fifty},
		{"limits hold where there are any", s.limits(caps)},
	} {
		t.Run(tt.name, tt.run)
	}
}

type suite struct {
	newDriver func(*testing.T) driver.Driver
}

// box is one sandbox of a test.
type box struct {
	driver.Instance
	d    driver.Driver
	spec driver.Spec
	root string
}

// spec is a spec in a root of its own.
func spec(t *testing.T) (driver.Spec, string) {
	t.Helper()
	root := t.TempDir()
	id := sandbox.NewID()
	dir := filepath.Join(root, string(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return driver.Spec{ID: id, Dir: dir, ShimPath: self, ShimArgs: []string{shimArg}, Env: map[string]string{"FLAVOUR": "sour"}}, root
}

// create makes a sandbox and checks at the end of the test that nothing is left.
func (s *suite) create(t *testing.T, change func(*driver.Spec)) *box {
	t.Helper()
	d := s.newDriver(t)
	sp, root := spec(t)
	if change != nil {
		change(&sp)
	}
	in, err := d.Create(t.Context(), sp)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	b := &box{Instance: in, d: d, spec: sp, root: root}
	t.Cleanup(func() {
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
		checkClean(t, sp)
	})
	return b
}

// sh runs a shell command in the sandbox, as who the shim is.
func (b *box) sh(t *testing.T, script string) string {
	t.Helper()
	return b.shAs(t, -1, script)
}

func (b *box) shAs(t *testing.T, uid int, script string) string {
	t.Helper()
	r := ask(t, b.Instance, request{Args: []string{"sh", "-c", script}, UID: uid})
	return strings.TrimSuffix(r.Out, "\n")
}

func ask(t *testing.T, in driver.Instance, req request) response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	conn, err := in.Dial(ctx)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline) //nolint:errcheck // a unix socket takes deadlines
	if err := gob.NewEncoder(conn).Encode(req); err != nil {
		t.Fatalf("ask %v: %v", req, err)
	}
	var resp response
	if err := gob.NewDecoder(conn).Decode(&resp); err != nil {
		t.Fatalf("answer to %v: %v", req, err)
	}
	return resp
}

// checkClean reports what a sandbox has left on the host.
func checkClean(t *testing.T, s driver.Spec) {
	t.Helper()
	left, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		t.Errorf("left in the directory: %s", e.Name())
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), string(s.ID)) { //nolint:errcheck // there is one
		t.Errorf("a mount of %s is left", s.ID)
	}
	for _, g := range cgroups(t) {
		if strings.Contains(g, string(s.ID)) {
			t.Errorf("cgroup %s is left", g)
		}
	}
	if pids := marked(s.ID); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// cgroups lists ours, wherever they are.
func cgroups(t *testing.T) []string {
	t.Helper()
	var found []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, _ := os.ReadDir(dir) //nolint:errcheck // groups of others come and go
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

// marked are the processes that have the sandbox's id in their environment or
// command line. The suite puts it there.
func marked(id sandbox.ID) []int {
	entries, _ := os.ReadDir("/proc") //nolint:errcheck // there is one
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		for _, f := range []string{"environ", "cmdline"} {
			b, err := os.ReadFile(filepath.Join("/proc", e.Name(), f))
			if err == nil && strings.Contains(string(b), string(id)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

func (s *suite) runs(t *testing.T) {
	b := s.create(t, nil)
	r := ask(t, b.Instance, request{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, UID: -1})
	if r.Out != "out\nerr\n" || r.Code != 7 {
		t.Errorf("got %q, %d; want both lines and 7", r.Out, r.Code)
	}
	select {
	case <-b.Done():
		t.Error("done while the shim lives")
	default:
	}
}

func (s *suite) redials(t *testing.T) {
	b := s.create(t, nil)
	for i := range 5 {
		conn, err := b.Dial(t.Context())
		if err != nil {
			t.Fatalf("dial %d: %v", i, err)
		}
		conn.Close()
	}
	if got := b.sh(t, "echo still here"); got != "still here" {
		t.Errorf("got %q", got)
	}
}

func (s *suite) environment(t *testing.T) {
	t.Setenv("MILLRACE_HOST_SECRET", "hidden")
	b := s.create(t, nil)
	env := b.sh(t, "env")
	if !strings.Contains(env, "FLAVOUR=sour\n") {
		t.Errorf("the spec's variable is missing in %q", env)
	}
	for _, name := range []string{"PATH", "HOME", "SHELL", "LANG"} {
		if !strings.Contains("\n"+env, "\n"+name+"=") {
			t.Errorf("%s is missing in %q", name, env)
		}
	}
	if strings.Contains(env, "hidden") {
		t.Error("a variable of the host is visible")
	}
	if got := b.sh(t, `cd "$HOME" && touch file && ls`); got != "file" {
		t.Errorf("a file in $HOME: %q", got)
	}
}

func (s *suite) longDirectory(t *testing.T) {
	b := s.create(t, func(sp *driver.Spec) {
		sp.Dir = filepath.Join(sp.Dir, strings.Repeat("d", 120), strings.Repeat("e", 120))
		if err := os.MkdirAll(sp.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	if got := b.sh(t, "echo deep"); got != "deep" {
		t.Errorf("got %q", got)
	}
}

func (s *suite) badShim(t *testing.T) {
	sp, _ := spec(t)
	sp.ShimPath = filepath.Join(sp.Dir, "missing")
	if _, err := s.newDriver(t).Create(t.Context(), sp); err == nil {
		t.Error("created with a shim that does not exist")
	}
	checkClean(t, sp)
}

func (s *suite) canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sp, _ := spec(t)
	in, err := s.newDriver(t).Create(ctx, sp)
	if err == nil { // it may have been too fast to notice
		err = in.Destroy(context.Background())
	} else if !kind.Is(err, kind.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	checkClean(t, sp)
}

func (s *suite) twice(t *testing.T) {
	b := s.create(t, nil)
	if _, err := b.d.Create(t.Context(), b.spec); !kind.Is(err, kind.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got := b.sh(t, "echo unharmed"); got != "unharmed" {
		t.Errorf("got %q", got)
	}
}

func (s *suite) destroys(t *testing.T) {
	b := s.create(t, nil)
	foreign := filepath.Join(b.spec.Dir, "spool")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.sh(t, "cd $HOME && mkdir -p a/b/c && touch a/b/c/d && chmod 000 a/b/c a/b a && ln -s / root && mkfifo pipe")
	for range 3 {
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatalf("destroy: %v", err)
		}
	}
	if err := os.Remove(foreign); err != nil {
		t.Errorf("a file of the caller's: %v", err)
	}
	if _, err := b.Dial(t.Context()); !kind.Is(err, kind.Unavailable) {
		t.Errorf("dial after destroy: %v, want unavailable", err)
	}
	select {
	case <-b.Done():
	default:
		t.Error("not done after destroy")
	}
	checkClean(t, b.spec)
}

func (s *suite) killsAll(t *testing.T) {
	b := s.create(t, nil)
	// Its argument makes it findable on the host.
	b.sh(t, "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; (sleep 1000 & exec sleep 1000 "+string(b.spec.ID)+" 2>&-) & sleep 1000' "+
		string(b.spec.ID)+" >/dev/null 2>&1 & done")
	if len(marked(b.spec.ID)) == 0 {
		t.Fatal("the test sees none of its own processes")
	}
	start := time.Now()
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	checkClean(t, b.spec)
}

func (s *suite) done(t *testing.T) {
	b := s.create(t, nil)
	again := b.attach(t, s.newDriver(t))
	kill(t, b.spec)
	for name, in := range map[string]driver.Instance{"created": b.Instance, "attached": again} {
		wait(t, name, in)
		if _, err := in.Dial(t.Context()); !kind.Is(err, kind.Unavailable) {
			t.Errorf("%s: dial: %v, want unavailable", name, err)
		}
	}
}

// attach attaches as another life of hostd would.
func (b *box) attach(t *testing.T, d driver.Driver) driver.Instance {
	t.Helper()
	in, err := d.Attach(t.Context(), driver.Spec{ID: b.spec.ID, Dir: b.spec.Dir})
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	return in
}

func wait(t *testing.T, name string, in driver.Instance) {
	t.Helper()
	select {
	case <-in.Done():
	case <-time.After(patient):
		t.Fatalf("%s: not done", name)
	}
}

// kill kills the shim of a sandbox from outside.
func kill(t *testing.T, sp driver.Spec) {
	t.Helper()
	if err := unix.Kill(shimPID(t, sp), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) attaches(t *testing.T) {
	b := s.create(t, nil)
	b.sh(t, "echo kept > $HOME/file")
	in := b.attach(t, s.newDriver(t))
	r := ask(t, in, request{Args: []string{"sh", "-c", "cat $HOME/file"}, UID: -1})
	if r.Out != "kept\n" {
		t.Errorf("got %q", r.Out)
	}
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatalf("destroy after attach: %v", err)
	}
	wait(t, "the first instance", b.Instance)
	checkClean(t, b.spec)
}

func (s *suite) sweeps(t *testing.T) {
	b := s.create(t, nil)
	kill(t, b.spec)
	wait(t, "created", b.Instance)
	if _, err := s.newDriver(t).Attach(t.Context(), driver.Spec{ID: b.spec.ID, Dir: b.spec.Dir}); !kind.Is(err, kind.NotFound) {
		t.Errorf("got %v, want not found", err)
	}
	checkClean(t, b.spec)
}

func (s *suite) attachNothing(t *testing.T) {
	sp, _ := spec(t)
	d := s.newDriver(t)
	if _, err := d.Attach(t.Context(), sp); !kind.Is(err, kind.NotFound) {
		t.Errorf("empty directory: %v, want not found", err)
	}
	if err := os.Remove(sp.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Attach(t.Context(), sp); !kind.Is(err, kind.NotFound) {
		t.Errorf("no directory: %v, want not found", err)
	}
	if ids, err := d.List(t.Context(), filepath.Join(sp.Dir, "none")); err != nil || len(ids) > 0 {
		t.Errorf("list of no directory: %v, %v", ids, err)
	}
}

func (s *suite) lists(t *testing.T) {
	b := s.create(t, nil)
	want := []sandbox.ID{b.spec.ID}
	list := func(when string) {
		t.Helper()
		got, err := s.newDriver(t).List(t.Context(), b.root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", when, got, err, want)
		}
	}
	list("living")
	kill(t, b.spec)
	wait(t, "created", b.Instance)
	list("dead")
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = nil
	list("destroyed")
}
