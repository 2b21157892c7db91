package hostd

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// A host creates no sandbox with less isolation than requested, whatever placed it there.
func TestIsolationIsNeverLowered(t *testing.T) {
	r := newRunningRig(t)
	s, _ := r.view.Sandbox(r.sandbox())
	for _, level := range sandbox.Isolations() {
		id := r.request(sandbox.Requested{Isolation: level})
		if got := r.awaitPhase(id, sandbox.PhaseRunning); got.IsRunning() != s.Isolation.AtLeast(level) {
			t.Errorf("isolation %s on a host with %s: %s %s", level, s.Isolation, got.Phase, got.Cause)
		} else if got.IsRunning() && got.Isolation != s.Isolation {
			t.Errorf("record has isolation %q, want %q", got.Isolation, s.Isolation)
		}
	}
}

// Auto selects the drivers that work, never direct. The one that may have to be built is not
// waited for.
func TestAutoDrivers(t *testing.T) {
	first := slices.IndexFunc(Probe(t.Context()), func(d DriverReport) bool { return d.Default })
	cfg := Config{}
	open := func() ([]drivers.Offer, error) {
		all := drivers.New(cfg.driverConfig())
		err := all.Open(t.Context())
		return all.Offers(), err
	}
	got, err := open()
	if first < 0 && err == nil {
		t.Errorf("opened %v; Probe reports no default", got)
	}
	for _, o := range got {
		if o.Name() == "direct" || o.Name() == drivers.Late {
			t.Errorf("%s is offered at once", o.Name())
		}
	}
	cfg.Drivers = []string{"direct", Auto, "direct"}
	if named, err := open(); len(got) > 0 && (err != nil || len(named) != len(got)+1 || named[0].Name() != "direct") {
		t.Errorf("direct and auto: %v, %v", named, err)
	}
	cfg.Drivers = []string{"no-such"}
	if _, err := open(); !kind.Is(err, kind.Invalid) || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("unknown driver: %v", err)
	}
}

// Once gVisor is built and probed it is the default driver, unless another one was named before
// Auto.
func TestGvisorIsTheDefaultOnceItIsReady(t *testing.T) {
	if _, err := helperbin.Runsc().Find(); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		asked []string
		first string
	}{{nil, drivers.Late}, {[]string{"direct", Auto}, "direct"}} {
		r := newRigOn(t, Auto)
		r.cfg.Drivers = c.asked
		r.begin()
		h := r.awaitDriver(drivers.Late)
		if h.Drivers[0] != c.first {
			t.Errorf("drivers %q: offered %q", c.asked, h.Drivers)
		}
		if got := r.awaitPhase(r.request(sandbox.Requested{}), sandbox.PhaseRunning); got.Driver != c.first {
			t.Errorf("drivers %q: sandbox created by %q", c.asked, got.Driver)
		}
		r.kill() // the next run has its capabilities from the journal, while its sandbox waits
		r.begin()
		r.awaitLease(h.Epoch)
		if next, _ := r.view.Host(r.cfg.Name); !slices.Contains(next.Drivers, drivers.Late) || next.Drivers[0] != c.first {
			t.Errorf("drivers %q: offered in the next run %q", c.asked, next.Drivers)
		}
	}
}

// awaitDriver waits until the host offers a driver.
func (r *rig) awaitDriver(name string) fleet.Host {
	r.t.Helper()
	changed, stop := r.view.Changes()
	defer stop()
	deadline := time.After(testTimeout)
	for {
		h, ok := r.view.Host(r.cfg.Name)
		if ok && !h.Gone && slices.Contains(h.Drivers, name) {
			return h
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("driver %s is not offered, only %q", name, h.Drivers)
		}
	}
}

// A limit that the driver cannot enforce fails the create if it is demanded, and is on record if
// it is a default.
func TestUnenforcedLimitsAreReported(t *testing.T) {
	r := newRunningRig(t)
	s, _ := r.view.Sandbox(r.sandbox())
	lease, _ := r.view.Host(r.cfg.Name)
	i := slices.Index(lease.Drivers, s.Driver)
	if i < 0 || i >= len(lease.Enforced) {
		t.Fatalf("the lease has %q for drivers %q, without %s", lease.Enforced, lease.Drivers, s.Driver)
	}
	for _, limit := range sandbox.AllLimits() {
		enforced := slices.Contains(strings.Fields(lease.Enforced[i]), string(limit))
		req := map[sandbox.Limit]sandbox.Requested{
			sandbox.LimitCPU: {Resources: sandbox.Resources{CPUMilli: 1000}}, sandbox.LimitMemory: {Resources: sandbox.Resources{MemoryMiB: 256}},
			sandbox.LimitDisk: {Resources: sandbox.Resources{DiskMiB: 64}}, sandbox.LimitPIDs: {Resources: sandbox.Resources{PIDs: 64}},
		}[limit]
		got := r.awaitPhase(r.request(req), sandbox.PhaseRunning)
		if !got.IsRunning() || slices.Contains(got.Unenforced, limit) == enforced || len(got.Warnings()) != len(got.Unenforced) {
			t.Errorf("%s limit by default, enforced %t: %s %s, unenforced %v, warnings %q", limit, enforced, got.Phase, got.Cause, got.Unenforced, got.Warnings())
		}
		req.Demanded = []sandbox.Limit{limit}
		got = r.awaitPhase(r.request(req), sandbox.PhaseRunning)
		if got.IsRunning() != enforced || !enforced && !strings.Contains(got.Cause, string(limit)) {
			t.Errorf("%s limit demanded, enforced %t: %s %q", limit, enforced, got.Phase, got.Cause)
		}
	}
}
