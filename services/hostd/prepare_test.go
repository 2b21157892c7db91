package hostd

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
	"github.com/millrace/millrace/services/hostd/internal/instances"
)

// slowPreparation is a driver whose first late preparations wait for its gate.
type slowPreparation struct {
	driver.Driver
	late *atomic.Int32
	gate chan struct{}
}

var _ driver.Preparer = slowPreparation{}

func (d slowPreparation) Prepare(ctx context.Context, s *driver.Spec) error {
	if d.late.Add(-1) < 0 {
		return nil
	}
	select {
	case <-d.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sandboxes that wait for their template's preparation do not hold up others.
func TestPreparationDoesNotBlockOtherCreates(t *testing.T) {
	r, d := newRig(t), slowPreparation{direct.New(direct.Config{}), new(atomic.Int32), make(chan struct{})}
	r.cfg.drivers = []driver.Driver{d}
	r.begin()
	r.awaitLease(0)
	waiting := make([]sandbox.ID, instances.BuildsPerCPU*runtime.GOMAXPROCS(0))
	d.late.Store(int32(len(waiting)))
	for i := range waiting {
		waiting[i] = r.request(sandbox.Requested{Template: "base"})
	}
	until(t, "sandboxes without preparation", 0, func() int { return int(max(d.late.Load(), 0)) })
	r.sandbox()
	close(d.gate)
	for _, id := range waiting {
		r.awaitPhase(id, sandbox.PhaseRunning)
	}
}

// unprepared is a driver whose preparation fails.
type unprepared struct{ driver.Driver }

func (unprepared) Prepare(context.Context, *driver.Spec) error {
	return kind.New(kind.Deadline, "create sandbox", "x", "the template's image is not finished")
}

func TestFailedPreparationIsReported(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{unprepared{direct.New(direct.Config{})}}
	r.begin()
	r.awaitLease(0)
	s := r.awaitPhase(r.request(sandbox.Requested{Template: "base"}), sandbox.PhaseFailed)
	if !strings.Contains(s.Cause, "not finished") {
		t.Errorf("%+v", s)
	}
}

// prepared is a slow driver with a preparation.
type prepared struct {
	slow
	prepare func(context.Context, *driver.Spec) error
}

func (d prepared) Prepare(ctx context.Context, s *driver.Spec) error { return d.prepare(ctx, s) }

// Warm instances are created while a sandbox waits for its template's preparation.
func TestWarmPoolIsFilledDuringAPreparation(t *testing.T) {
	r, made, _ := warmRig(t)
	const large = 256
	waits, gate := make(chan struct{}, 1), make(chan struct{})
	r.cfg.drivers = []driver.Driver{prepared{r.cfg.drivers[0].(slow), func(ctx context.Context, s *driver.Spec) error {
		if s.MemoryMiB != large {
			return nil
		}
		select {
		case waits <- struct{}{}:
		default:
		}
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}}
	r.begin()
	r.awaitLease(0)
	r.sandbox()
	until(t, "made", 3, counted(made))
	late := r.request(sandbox.Requested{Template: "base", Resources: sandbox.Resources{MemoryMiB: large}})
	<-waits
	r.sandbox()
	until(t, "created during the preparation", 4, counted(made))
	close(gate)
	r.awaitPhase(late, sandbox.PhaseRunning)
}
