package hostd

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
)

// other is direct with another name.
type other struct{ driver.Driver }

func (other) Name() string { return "other" }

func newOther() []driver.Driver { return []driver.Driver{other{direct.New(direct.Config{})}} }

// A sandbox whose driver is not offered any more continues, and can have a snapshot.
func TestSandboxOutlivesTheOfferOfItsDriver(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	epoch := r.awaitLease(0)
	sbx := r.sandbox()
	r.write(sbx, "then")
	r.kill()
	r.cfg.drivers = newOther()
	r.begin()
	r.awaitLease(epoch)
	if snap := r.snapshot(sbx); snap.Driver != "direct" || snap.Fits != "" {
		t.Errorf("snapshot by driver %s, fits %q", snap.Driver, snap.Fits)
	}
	if got := r.file(sbx, "file"); got != "then\n" {
		t.Errorf("file has %q", got)
	}
}

// A sandbox that the previous run created but did not record is recorded as it was created, and
// fails if its driver is not offered any more.
func TestUnrecordedSandboxIsRecordedAsCreated(t *testing.T) {
	for name, c := range map[string]struct {
		drivers []driver.Driver
		want    sandbox.Phase
	}{"offered": {nil, sandbox.PhaseRunning}, "not offered any more": {newOther(), sandbox.PhaseFailed}} {
		r := newRigOn(t, "direct")
		r.cfg.Fault = interruptAt("created", 1)
		first := r.begin()
		epoch := r.awaitLease(0)
		sbx := r.request(sandbox.Requested{Template: "base"})
		r.awaitEnd(first)
		r.cfg.Fault, r.cfg.drivers = nil, c.drivers
		r.begin()
		r.awaitLease(epoch)
		s := r.awaitPhase(sbx, c.want)
		if s.Phase != c.want {
			t.Errorf("sandbox with a driver that is %s: %s, %s", name, s.Phase, s.Cause)
		}
		if s.IsRunning() && (s.Driver != "direct" || s.Isolation != sandbox.IsolationNone || !s.Can.Files) {
			t.Errorf("record: driver %q, isolation %q, %+v", s.Driver, s.Isolation, s.Can)
		}
	}
}

// Whether a sandbox has a loopback of its own is known before its driver is open.
func TestIsolationComesFromTheRecord(t *testing.T) {
	for _, level := range []sandbox.Isolation{"", sandbox.IsolationNone, sandbox.IsolationKernel} {
		sb := bareIn(&host{}, &sandbox.State{ID: "b", Phase: sandbox.PhaseRunning, Isolation: level})
		if got := sb.created.Isolation; got != level {
			t.Errorf("isolation %q, want %q", got, level)
		}
	}
}

// A driver may be dropped while a sandbox is created from a snapshot.
func TestSnapshotDoesNotFitADroppedDriver(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: tenant, Host: "elsewhere", Driver: drivers.Late, Fits: "build 1"}
	if err := log.PutSnapshot(t.Context(), &snap); err != nil {
		t.Fatal(err)
	}
	h := &host{log: log, view: eventstest.View(t, log)}
	sb := bare(h)
	h.drivers = drivers.New(drivers.Config{Fixed: []driver.Driver{named{name: "other"}}})
	if err := errors.Join(h.drivers.Open(t.Context()), h.drivers.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	sb.driver, sb.req.From = named{name: drivers.Late}, snap.ID
	if dir, err := sb.files.ensureSnapshot(t.Context()); !kind.Is(err, kind.Precondition) {
		t.Errorf("snapshot at %q, %v", dir, err)
	}
}

// named is a driver with nothing but a name.
type named struct {
	driver.Driver
	name string
}

func (d named) Name() string { return d.name }

func (named) Probe(context.Context) (driver.Caps, error) { return driver.Caps{}, nil }
