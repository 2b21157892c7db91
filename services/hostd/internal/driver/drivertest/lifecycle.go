//go:build linux

package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

func (s *suite) testCommand(t *testing.T) {
	b := s.create(t, nil)
	r := send(t, b.Instance, request{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, UID: -1})
	if r.Out != "out\nerr\n" || r.Code != 7 {
		t.Errorf("got %q, %d; want both lines and 7", r.Out, r.Code)
	}
	select {
	case <-b.Done():
		t.Error("Done is closed while the shim runs")
	default:
	}
}

func (s *suite) testRedial(t *testing.T) {
	b := s.create(t, nil)
	for i := range 5 {
		conn, err := b.Dial(t.Context())
		if err != nil {
			t.Fatalf("dial %d: %v", i, err)
		}
		conn.Close()
	}
	if got := b.sh(t, "echo here"); got != "here" {
		t.Errorf("got %q", got)
	}
}

func (s *suite) testEnvironment(t *testing.T) {
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

func (s *suite) testLongDirectory(t *testing.T) {
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

func (s *suite) testUnknownShim(t *testing.T) {
	sp, _ := spec(t)
	sp.ShimPath = filepath.Join(sp.Dir, "missing")
	if _, err := s.newDriver(t).Create(t.Context(), sp); err == nil {
		t.Error("created with a shim that does not exist")
	}
	checkClean(t, sp)
}

func (s *suite) testCanceledCreate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sp, _ := spec(t)
	in, err := s.newDriver(t).Create(ctx, sp)
	switch {
	case err == nil: // it finished before the cancellation
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
	case !kind.Is(err, kind.Canceled):
		t.Errorf("got %v, want canceled", err)
	}
	checkClean(t, sp)
}

func (s *suite) testSecondCreate(t *testing.T) {
	b := s.create(t, nil)
	if _, err := b.d.Create(t.Context(), b.spec); !kind.Is(err, kind.Conflict) {
		t.Errorf("got %v, want Conflict", err)
	}
	if got := b.sh(t, "echo unharmed"); got != "unharmed" {
		t.Errorf("got %q", got)
	}
}

func (s *suite) testDestroy(t *testing.T) {
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
		t.Errorf("dial after destroy: %v, want Unavailable", err)
	}
	select {
	case <-b.Done():
	default:
		t.Error("Done is not closed after destroy")
	}
	checkClean(t, b.spec)
}

func (s *suite) testDestroyKillsAll(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		// Its argument identifies it on the host.
		b.sh(t, "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; (sleep 1000 & exec sleep 1000 "+string(b.spec.ID)+" 2>&-) & sleep 1000' "+
			string(b.spec.ID)+" >/dev/null 2>&1 & done")
		b.headless(t)
		if len(pidsWith(b.spec.ID)) == 0 && caps.Isolation != "machine" { // whose processes are invisible to the host
			t.Fatal("the processes of the test are invisible")
		}
		start := time.Now()
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > waitTime {
			t.Errorf("took %v", took)
		}
		checkClean(t, b.spec)
	}
}

func (s *suite) testDone(t *testing.T) {
	b := s.create(t, nil)
	attached := b.attach(t, s.newDriver(t))
	killShim(t, b.spec)
	for name, in := range map[string]driver.Instance{"created": b.Instance, "attached": attached} {
		awaitDone(t, name, in)
		if _, err := in.Dial(t.Context()); !kind.Is(err, kind.Unavailable) {
			t.Errorf("%s: dial: %v, want Unavailable", name, err)
		}
	}
}

// attach attaches as another run of hostd would.
func (b *instance) attach(t *testing.T, d driver.Driver) driver.Instance {
	t.Helper()
	in, err := d.Attach(t.Context(), driver.Spec{ID: b.spec.ID, Dir: b.spec.Dir})
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	return in
}

func awaitDone(t *testing.T, name string, in driver.Instance) {
	t.Helper()
	select {
	case <-in.Done():
	case <-time.After(waitTime):
		t.Fatalf("%s: Done is not closed", name)
	}
}

// killShim kills the shim of a sandbox from outside.
func killShim(t *testing.T, sp driver.Spec) {
	t.Helper()
	if err := unix.Kill(shimPID(t, sp), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) testAttach(t *testing.T) {
	b := s.create(t, nil)
	b.sh(t, "echo kept > $HOME/file")
	in := b.attach(t, s.newDriver(t))
	r := send(t, in, request{Args: []string{"sh", "-c", "cat $HOME/file"}, UID: -1})
	if r.Out != "kept\n" {
		t.Errorf("got %q", r.Out)
	}
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatalf("destroy after attach: %v", err)
	}
	awaitDone(t, "the first instance", b.Instance)
	checkClean(t, b.spec)
}

func (s *suite) testAttachSweeps(t *testing.T) {
	b := s.create(t, nil)
	killShim(t, b.spec)
	awaitDone(t, "created", b.Instance)
	if _, err := s.newDriver(t).Attach(t.Context(), driver.Spec{ID: b.spec.ID, Dir: b.spec.Dir}); !kind.Is(err, kind.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
	checkClean(t, b.spec)
}

func (s *suite) testAttachNothing(t *testing.T) {
	sp, _ := spec(t)
	d := s.newDriver(t)
	if _, err := d.Attach(t.Context(), sp); !kind.Is(err, kind.NotFound) {
		t.Errorf("empty directory: %v, want NotFound", err)
	}
	if err := os.Remove(sp.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Attach(t.Context(), sp); !kind.Is(err, kind.NotFound) {
		t.Errorf("no directory: %v, want NotFound", err)
	}
	if ids, err := d.List(t.Context(), filepath.Join(sp.Dir, "none")); err != nil || len(ids) > 0 {
		t.Errorf("list of no directory: %v, %v", ids, err)
	}
}

func (s *suite) testList(t *testing.T) {
	b := s.create(t, nil)
	want := []sandbox.ID{b.spec.ID}
	list := func(when string) {
		t.Helper()
		got, err := s.newDriver(t).List(t.Context(), b.root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", when, got, err, want)
		}
	}
	list("running")
	killShim(t, b.spec)
	awaitDone(t, "created", b.Instance)
	list("dead")
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = nil
	list("destroyed")
}

// testUniqueSecrets: instances may be made from the same memory, but their kernels' random numbers
// are unique, and the time is the host's.
func (s *suite) testUniqueSecrets(t *testing.T) {
	const random = "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid"
	seen := map[string]bool{}
	for range 2 {
		before := time.Now().Unix()
		b := s.create(t, nil)
		for line := range strings.Lines(b.sh(t, random)) {
			if seen[line] {
				t.Errorf("random value %q is repeated", line)
			}
			seen[line] = true
		}
		if id := b.sh(t, "cat /proc/sys/kernel/random/boot_id 2>/dev/null"); s.own && id != "" && seen[id] {
			t.Errorf("two kernels have the id %s", id)
		} else {
			seen[id] = true
		}
		if now := parseInt(t, b.sh(t, "date +%s")); int64(now) < before {
			t.Errorf("time %d inside is before the creation at %d", now, before)
		}
	}
}
