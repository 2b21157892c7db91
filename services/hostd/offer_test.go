package hostd

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// other is direct by another name.
type other struct{ driver.Driver }

func (other) Name() string { return "other" }

func newOther() []driver.Driver { return []driver.Driver{other{direct.New(direct.Config{})}} }

// A sandbox goes on whose driver is not offered any more, and can be kept.
func TestASandboxOutlivesTheOfferOfItsDriver(t *testing.T) {
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
		t.Errorf("kept by driver %s, for %q", snap.Driver, snap.Fits)
	}
	if got := r.file(sbx, "file"); got != "then\n" {
		t.Errorf("the file says %q", got)
	}
}

// What the life before made and did not come to put on record fails if nobody knows any
// more what it is.
func TestAPlaceOfADriverThatIsNotOfferedFails(t *testing.T) {
	r := newRigOn(t, "direct")
	r.cfg.Fault = cutAt("created", 1)
	first := r.begin()
	epoch := r.awaitLease(0)
	sbx := r.request(sandbox.Requested{Template: "base"})
	r.awaitEnd(first)
	r.cfg.Fault, r.cfg.drivers = nil, newOther()
	r.begin()
	r.awaitLease(epoch)
	r.awaitPhase(sbx, sandbox.PhaseFailed)
}

// pensive is a driver that does not find a place before it is told to.
type pensive struct {
	driver.Driver
	await func()
}

func (d pensive) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	d.await()
	return d.Driver.Attach(ctx, s)
}

// However long a life sees to what the one before left, its lease is kept.
func TestTheLeaseIsKeptWhileALifeBegins(t *testing.T) {
	r := newRigOn(t, "direct")
	r.cfg.LeaseTTL = time.Second
	r.begin()
	epoch := r.awaitLease(0)
	sbx := r.sandbox()
	r.kill()
	renewed := sync.OnceFunc(func() {
		changed, stop := r.view.Changes()
		defer stop()
		deadline := time.After(patience)
		for revs := map[uint64]bool{}; len(revs) < 3; {
			if h, ok := r.view.Host(hostName); ok && h.Epoch > epoch {
				revs[h.Rev] = true
			}
			select {
			case <-changed:
			case <-deadline:
				t.Errorf("the lease was renewed %d times", len(revs))
				return
			}
		}
	})
	r.cfg.drivers = []driver.Driver{pensive{direct.New(direct.Config{}), renewed}}
	r.begin()
	r.awaitLease(epoch)
	if s, _ := r.view.Sandbox(sbx); !s.Live() {
		t.Errorf("the sandbox is %s", s.Phase)
	}
}

// Whoever holds a box may ask the host: who counts holds the one at a time.
func TestCountingHoldsNobodyUp(t *testing.T) {
	h := &host{boxes: map[sandbox.ID]*box{}}
	b := newBox(h, &sandbox.State{ID: "b"})
	h.boxes[b.id] = b
	const rounds = 20_000
	var both sync.WaitGroup
	both.Go(func() {
		for range rounds {
			h.counts()
		}
	})
	both.Go(func() {
		for range rounds {
			b.mu.Lock()
			h.offers()
			b.mu.Unlock()
		}
	})
	done := make(chan struct{})
	go func() { both.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("both wait for each other")
	}
}

// All sandboxes of a life are of one driver of a name, whoever asked for it: it knows
// which of the host's uids they have.
func TestALifeHasOneDriverOfAName(t *testing.T) {
	cfg := Config{Drivers: []string{"direct"}, made: &makes{all: map[string]driver.Driver{}}}
	h := &host{cfg: cfg}
	found, err := h.driverFor("direct")
	if err != nil {
		t.Fatal(err)
	}
	all, err := openDrivers(t.Context(), &h.cfg)
	if err != nil || len(all) != 1 || all[0].Driver != found {
		t.Errorf("another one is offered: %v, %v", all, err)
	}
}
