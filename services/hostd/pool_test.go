package hostd

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// slow is a driver that reports to be slow, and counts creates.
type slow struct {
	driver.Driver
	made, rehearse *atomic.Int32
}

func (d slow) Probe(ctx context.Context) (driver.Caps, error) {
	caps, err := d.Driver.Probe(ctx)
	caps.WarmMiB = 4
	return caps, err
}

func (d slow) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	defer d.made.Add(1)
	if slices.Contains(s.ShimArgs, "-rehearse") {
		d.rehearse.Add(1)
	}
	return d.Driver.Create(ctx, s)
}

// warmRig returns a rig whose host keeps two warm instances.
func warmRig(t *testing.T) (r *rig, made, rehearse *atomic.Int32) {
	t.Helper()
	r = newRig(t)
	made, rehearse = new(atomic.Int32), new(atomic.Int32)
	r.cfg.Warm, r.cfg.drivers = 2, []driver.Driver{slow{direct.New(direct.Config{}), made, rehearse}}
	return r, made, rehearse
}

// until waits until got returns want.
func until(t *testing.T, what string, want int, got func() int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(testTimeout)
	for got() != want {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: %d, want %d", what, got(), want)
		}
	}
}

// dirs returns the number of instances on the disk.
func (r *rig) dirs() int {
	entries, err := os.ReadDir(r.cfg.DataDir + "/" + sandboxDir)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(entries)
}

// counted returns a function for until that reads made.
func counted(made *atomic.Int32) func() int { return func() int { return int(made.Load()) } }

// A create takes a warm instance, others are created, and after the last run no unused one is
// left. The next run adopts a sandbox in such an instance.
func TestWarmPool(t *testing.T) {
	r, made, rehearse := warmRig(t)
	r.begin()
	r.awaitLease(0)
	r.sandbox()
	until(t, "made", 3, counted(made))
	if n := rehearse.Load(); n != 2 {
		t.Errorf("%d instances rehearsed, want the two in the pool", n)
	}
	second := r.sandbox()
	if got := r.whole(r.start(second, sh("echo $E2B_SANDBOX_ID $OF"))); string(got.out[process.Stdout]) != string(second)+" sandbox\n" {
		t.Errorf("output %q", got.out[process.Stdout])
	}
	until(t, "made", 4, counted(made))
	if _, err := os.Stat(r.cfg.DataDir + "/" + sandboxDir + "/" + string(second)); err == nil {
		t.Error("the sandbox has an instance of its own name")
	}
	other := r.request(sandbox.Requested{Template: "base", Resources: sandbox.Resources{PIDs: 77}}) // no warm instance has that spec
	r.awaitPhase(other, sandbox.PhaseRunning)
	until(t, "made", 6, counted(made)) // each of the two specs may have one of the two warm instances
	until(t, "instances", 5, r.dirs)
	id := r.start(second, counts())
	r.awaitOutput(id, "\n3\n")
	r.kill()
	if n := r.dirs(); n != 3 {
		t.Errorf("%d instances left, want those of three sandboxes", n)
	}
	r.begin()
	r.awaitLease(1)
	r.awaitOutput(id, "\n20\n")
	r.stopSandbox(second)
	r.awaitPhase(second, sandbox.PhaseDestroyed)
	until(t, "instances", 2, r.dirs)
	wantCount(t, "count across runs", r.whole(id).upTo(1<<60))
}

// An interrupted host leaves no instance without an owner, and loses none that a sandbox got.
func TestInterruptedWithAWarmPool(t *testing.T) {
	for n, point := range map[int]string{2: "created", 3: "running"} {
		r, made, _ := warmRig(t)
		interrupted := r.beginInterrupted(interruptAt(point, n))
		r.awaitLease(0)
		r.sandbox()
		until(t, "made", 3, counted(made))
		var last sandbox.ID
		for range n - 1 {
			last = r.sandbox()
		}
		if !interrupted() {
			t.Errorf("%s: the host was never interrupted", point)
		}
		r.awaitLease(1)
		if got := r.whole(r.start(last, sh("echo here"))); string(got.out[process.Stdout]) != "here\n" {
			t.Errorf("%s: output %q", point, got.out[process.Stdout])
		}
		r.kill()
		if got := r.dirs(); got != n {
			t.Errorf("%s: %d instances left, want those of %d sandboxes", point, got, n)
		}
	}
}
