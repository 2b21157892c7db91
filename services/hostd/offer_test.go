package hostd

import (
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
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
