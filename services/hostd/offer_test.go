package hostd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
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
	for level, want := range map[sandbox.Isolation]bool{"": false, sandbox.IsolationNone: false, sandbox.IsolationKernel: true} {
		sb := newSandbox(&host{}, &sandbox.State{ID: "b", Phase: sandbox.PhaseRunning, Isolation: level})
		if sb.isolated() != want {
			t.Errorf("isolation %q: isolated is %v", level, !want)
		}
	}
}

// All sandboxes of a run share one driver per name, adopted or created: it tracks which of the
// host's uids they use.
func TestRunHasOneDriverPerName(t *testing.T) {
	h := &host{cfg: Config{Drivers: []string{"direct"}, Name: hostName, DataDir: t.TempDir(), Log: new(events.Log)}}
	if err := setDefaults(&h.cfg); err != nil {
		t.Fatal(err)
	}
	found, err := h.driverFor("direct")
	if err != nil {
		t.Fatal(err)
	}
	all, err := openDrivers(t.Context(), &h.cfg)
	if err != nil || len(all) != 1 || all[0].Driver != found {
		t.Errorf("a second driver is offered: %v, %v", all, err)
	}
}

// The capabilities that the late driver's probe finds are offered, and stored for the next run.
func TestLateDriverIsProbed(t *testing.T) {
	if _, err := helperbin.Runsc().Find(); err != nil {
		t.Skip(err)
	}
	j, err := openJournal(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	plain := offer{Driver: named{name: "plain"}}
	for _, c := range []struct {
		probe           error
		offered, proven []string
	}{
		{nil, []string{lateName, "plain"}, []string{lateName, "plain"}},
		{kind.New(kind.Unavailable, "probe", "", "not today"), []string{"plain"}, []string{"plain"}},
	} {
		h := &host{journal: j, slog: slog.New(slog.DiscardHandler), verified: []offer{plain}}
		remembered := offer{Driver: hookedDriver{Driver: named{name: lateName}, probe: func(context.Context) error { return c.probe }}}
		h.drivers = []offer{remembered, plain}
		if err := errors.Join(h.storeOffers(h.verified), h.offerLate(t.Context())); err != nil {
			t.Fatal(err)
		}
		next, err := j.offered()
		var proven []string
		for _, o := range next.Drivers {
			proven = append(proven, o.Name)
		}
		if got := names(h.offers()); !slices.Equal(got, c.offered) || !slices.Equal(proven, c.proven) || err != nil {
			t.Errorf("probe with %v: offered %q, stored %q, %v", c.probe, got, proven, err)
		}
	}
}

// A driver may be dropped while a sandbox is created from a snapshot.
func TestSnapshotDoesNotFitADroppedDriver(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: tenant, Host: "elsewhere", Driver: lateName, Fits: "build 1"}
	if err := log.PutSnapshot(t.Context(), &snap); err != nil {
		t.Fatal(err)
	}
	h := &host{log: log, view: eventstest.View(t, log), driversOpened: make(chan struct{}), driversSettled: make(chan struct{})}
	close(h.driversOpened)
	close(h.driversSettled)
	sb := bare(h)
	sb.driver, sb.req.From = named{name: lateName}, snap.ID
	if dir, err := sb.ensureSnapshot(t.Context()); !kind.Is(err, kind.Precondition) {
		t.Errorf("snapshot at %q, %v", dir, err)
	}
}

// awaitOffer waits for a driver as long as it may be added, and no longer.
func TestAwaitOffer(t *testing.T) {
	plain, late := offer{Driver: direct.New(direct.Config{})}, offer{Driver: named{name: lateName}}
	const opened, settled = 1, 2 // steps after which the answer is known
	for _, c := range []struct {
		what, asked string
		first       []offer
		known       int
		want        string // empty: not offered
	}{
		{"one that is offered", "direct", []offer{plain}, opened, "direct"},
		{"the default", "", []offer{plain}, opened, "direct"},
		{"one that is not built", "other", []offer{plain}, opened, ""},
		{"the late one", lateName, []offer{plain}, settled, lateName},
		{"the late one, from the journal", lateName, []offer{late, plain}, opened, lateName},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &host{driversOpened: make(chan struct{}), driversSettled: make(chan struct{})}
			got, answered := "", false
			go func() {
				if o, ok := h.awaitOffer(t.Context(), c.asked); ok {
					got = o.Name()
				}
				answered = true
			}()
			steps := []func(){
				func() {},
				func() { h.setOffers(c.first) },
				func() { h.drivers = with(c.first, late, false); close(h.driversSettled) },
			}
			for step, do := range steps {
				do()
				synctest.Wait()
				if answered != (step >= c.known) {
					t.Errorf("%s: answered: %v after step %d", c.what, answered, step)
				}
			}
			if got != c.want {
				t.Errorf("%s: %q", c.what, got)
			}
		})
	}
}

// A driver that is offered again replaces its old offer, at the requested position.
func TestDriverIsOfferedOnce(t *testing.T) {
	plain, late := offer{Driver: named{name: "plain"}}, offer{Driver: named{name: lateName}}
	for _, c := range []struct {
		before []offer
		first  bool
		want   []string
	}{
		{[]offer{plain}, true, []string{lateName, "plain"}},
		{[]offer{plain}, false, []string{"plain", lateName}},
		{[]offer{late, plain}, true, []string{lateName, "plain"}},
		{[]offer{plain, late}, false, []string{"plain", lateName}},
	} {
		if got := names(with(c.before, late, c.first)); !slices.Equal(got, c.want) {
			t.Errorf("%d before, first %v: %q", len(c.before), c.first, got)
		}
	}
}

// awaitOffer ends with its context.
func TestAwaitOfferEndsWithItsContext(t *testing.T) {
	h := &host{driversOpened: make(chan struct{}), driversSettled: make(chan struct{})}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if o, ok := h.awaitOffer(over, lateName); ok {
		t.Errorf("got driver %s", o.Name())
	}
}

// named is a driver with nothing but a name.
type named struct {
	driver.Driver
	name string
}

func (d named) Name() string { return d.name }

func (named) Probe(context.Context) (driver.Caps, error) { return driver.Caps{}, nil }

func names(all []offer) (out []string) {
	for _, o := range all {
		out = append(out, o.Name())
	}
	return out
}
