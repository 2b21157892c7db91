package hostd

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// failingCreates is a driver whose creates fail and leave an instance, as on a host so busy that
// killed processes do not end in time. The first attempts to remove it fail, too.
type failingCreates struct {
	driver.Driver
	all     bool // also creates for sandboxes, not only for the pool
	left    chan driver.Instance
	failing *atomic.Int32 // attempts that will fail
}

func newFailingCreates(all bool) failingCreates {
	d := failingCreates{direct.New(direct.Config{}), all, make(chan driver.Instance, 16), new(atomic.Int32)}
	d.failing.Store(2)
	return d
}

func (d failingCreates) Probe(ctx context.Context) (driver.Caps, error) {
	caps, err := d.Driver.Probe(ctx)
	caps.WarmMiB = 4
	return caps, err
}

func (d failingCreates) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.Driver.Create(ctx, s)
	if err != nil || !d.all && !slices.Contains(s.ShimArgs, "-rehearse") {
		return in, err
	}
	d.left <- in
	return nil, kind.New(kind.Unavailable, "create sandbox", string(s.ID), "timeout")
}

func (d failingCreates) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if d.failing.Add(-1) >= 0 {
		return nil, kind.New(kind.Internal, "attach", string(s.ID), "its processes do not end")
	}
	return d.Driver.Attach(ctx, s)
}

// The remains of a failed create are removed before the sandbox's record has the failure.
func TestFailedCreateLeavesNothing(t *testing.T) {
	r, d := newRig(t), newFailingCreates(true)
	r.cfg.drivers = []driver.Driver{d}
	r.begin()
	r.awaitLease(0)
	r.awaitPhase(r.request(sandbox.Requested{Template: "base"}), sandbox.PhaseFailed)
	select {
	case <-(<-d.left).Done():
	default:
		t.Error("its shim still runs")
	}
	if n := r.dirs(); n != 0 {
		t.Errorf("%d instances left", n)
	}
}

// The remains of a failed create for the pool are removed, too: on the next call, if they cannot
// be at once.
func TestFailedWarmCreateLeavesNothing(t *testing.T) {
	r, d := newRig(t), newFailingCreates(false)
	r.cfg.Warm, r.cfg.drivers = 1, []driver.Driver{d}
	r.begin()
	r.awaitLease(0)
	var left []driver.Instance
	for range 3 {
		r.sandbox()
		select {
		case in := <-d.left:
			left = append(left, in)
		case <-r.ctx().Done():
			t.Fatal("no warm instance was created")
		}
	}
	for _, in := range left {
		select {
		case <-in.Done():
		case <-r.ctx().Done():
			t.Fatal("a shim still runs")
		}
	}
	until(t, "instances", 3, r.dirs)
}
