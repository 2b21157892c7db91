package hostd

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// hookedDriver is a driver whose Attach and Probe run a hook first.
type hookedDriver struct {
	driver.Driver
	attach func(context.Context)
	probe  func(context.Context) error
}

func (d hookedDriver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if d.attach != nil {
		d.attach(ctx)
	}
	return d.Driver.Attach(ctx, s)
}

func (d hookedDriver) Probe(ctx context.Context) (driver.Caps, error) {
	if d.probe != nil {
		if err := d.probe(ctx); err != nil {
			return driver.Caps{}, err
		}
	}
	return d.Driver.Probe(ctx)
}

// nextDriver ends the current run, and uses the driver in the next ones.
func (r *rig) nextDriver(d hookedDriver) {
	r.t.Helper()
	r.kill()
	d.Driver = direct.New(direct.Config{})
	r.cfg.drivers = []driver.Driver{d}
}

// However long the adoption of the previous run's sandboxes takes, the lease is kept, and shows
// that the host accepts no sandboxes yet.
func TestLeaseIsRenewedDuringStartup(t *testing.T) {
	r := newRigOn(t, "direct")
	r.cfg.LeaseTTL = time.Second
	r.begin()
	epoch := r.awaitLease(0)
	sbx := r.sandbox()
	thought := make(chan struct{})
	renewed := sync.OnceFunc(func() {
		defer close(thought)
		changed, stop := r.view.Changes()
		defer stop()
		deadline := time.After(testTimeout)
		for revs := map[uint64]bool{}; len(revs) < 3; {
			if h, ok := r.view.Host(hostName); ok && h.Epoch > epoch {
				if revs[h.Rev] = true; !h.Starting || !h.Draining {
					t.Errorf("starting: %v, draining: %v", h.Starting, h.Draining)
				}
			}
			select {
			case <-changed:
			case <-deadline:
				t.Errorf("the lease was renewed %d times", len(revs))
				return
			}
		}
	})
	r.nextDriver(hookedDriver{attach: func(context.Context) { renewed() }})
	r.begin()
	r.awaitLease(epoch)
	select {
	case <-thought:
	default:
		t.Error("the host accepts sandboxes before it attached to its own")
	}
	if s, _ := r.view.Sandbox(sbx); !s.IsRunning() {
		t.Errorf("the sandbox is %s", s.Phase)
	}
	if h, _ := r.view.Host(hostName); h.Starting {
		t.Error("the host accepts sandboxes while its lease says starting")
	}
}

// A run that is declared gone while it starts is fenced like a later one.
func TestHostIsFencedDuringStartup(t *testing.T) {
	r := newRigOn(t, "direct")
	r.cfg.LeaseTTL = time.Second
	r.begin()
	r.awaitLease(0)
	r.sandbox()
	gone := sync.OnceFunc(r.declareGone)
	r.nextDriver(hookedDriver{
		attach: func(ctx context.Context) { gone(); <-ctx.Done() },
		probe:  func(ctx context.Context) error { return ctx.Err() },
	})
	l := r.begin()
	r.awaitEnd(l)
	if !isKind(l.err, kind.Fenced) {
		t.Errorf("ended with %v", l.err)
	}
	r.cfg.drivers = nil
}

// Output of adopted sandboxes does not wait for drivers to be probed.
func TestSandboxesAreAdoptedBeforeDriversAreProbed(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	epoch := r.awaitLease(0)
	id := r.start(r.sandbox(), sh("while echo again; do sleep 0.05; done"))
	r.awaitOutput(id, "again")
	r.kill()
	tail, err := r.log.Tail(r.ctx(), record.Ref{Host: hostName, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	r.nextDriver(hookedDriver{probe: func(ctx context.Context) error {
		rd := r.log.Read(record.Ref{Host: hostName, ID: id}, tail.Last)
		defer rd.Close()
		got, err := rd.Next(ctx, testTimeout)
		if err == nil && len(got) == 0 {
			t.Error("no output while the driver is probed")
		}
		return err
	}})
	r.begin()
	r.awaitLease(epoch)
}

// The end of a start is published at once.
func TestEndOfStartupIsPublishedAtOnce(t *testing.T) {
	r := newRigOn(t, "direct")
	was := r.cfg.LeaseTTL
	r.cfg.LeaseTTL = time.Hour // the lease is not renewed by its timer
	defer func() { r.cfg.LeaseTTL = was }()
	r.begin()
	r.awaitLease(0)
}

// The next run removes what an interrupted one did not.
func TestNextRunFinishesARemoval(t *testing.T) {
	r := newRigOn(t, "direct")
	if err := os.MkdirAll(filepath.Join(r.cfg.DataDir, snapshotDir, string(sandbox.NewSnapshotID())+".removed", "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.begin()
	r.awaitLease(0)
	r.awaitKept(0)
}
