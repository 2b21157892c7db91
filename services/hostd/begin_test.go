package hostd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// pensive is a driver that thinks before it finds a place, or says what it can.
type pensive struct {
	driver.Driver
	attach func(context.Context)
	probe  func(context.Context) error
}

func (d pensive) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if d.attach != nil {
		d.attach(ctx)
	}
	return d.Driver.Attach(ctx, s)
}

func (d pensive) Probe(ctx context.Context) (driver.Caps, error) {
	if d.probe != nil {
		if err := d.probe(ctx); err != nil {
			return driver.Caps{}, err
		}
	}
	return d.Driver.Probe(ctx)
}

// nextThinks ends the life of the moment, and has the next ones think.
func (r *rig) nextThinks(d pensive) {
	r.t.Helper()
	r.kill()
	d.Driver = direct.New(direct.Config{})
	r.cfg.drivers = []driver.Driver{d}
}

// However long a life sees to what the one before left, its lease is kept, and says that
// it takes no sandboxes yet.
func TestTheLeaseIsKeptWhileALifeBegins(t *testing.T) {
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
		deadline := time.After(patience)
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
	r.nextThinks(pensive{attach: func(context.Context) { renewed() }})
	r.begin()
	r.awaitLease(epoch)
	select {
	case <-thought:
	default:
		t.Error("the sandbox was not looked for before")
	}
	if s, _ := r.view.Sandbox(sbx); !s.Live() {
		t.Errorf("the sandbox is %s", s.Phase)
	}
	if h, _ := r.view.Host(hostName); h.Starting {
		t.Error("it is starting and takes sandboxes")
	}
}

// A life that is declared gone before it has begun ends as one that was later.
func TestALifeIsFencedWhileItBegins(t *testing.T) {
	r := newRigOn(t, "direct")
	r.cfg.LeaseTTL = time.Second
	r.begin()
	r.awaitLease(0)
	r.sandbox()
	gone := sync.OnceFunc(r.declareGone)
	r.nextThinks(pensive{
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

// Who waits for a sandbox's output does not wait for drivers to be tried.
func TestSandboxesAreAttendedToBeforeDriversAreTried(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	epoch := r.awaitLease(0)
	id := r.start(r.sandbox(), sh("while echo again; do sleep 0.05; done"))
	r.awaitOutput(id, "again")
	r.kill()
	tip, err := r.log.Tip(r.ctx(), events.Ref{Host: hostName, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	r.nextThinks(pensive{probe: func(ctx context.Context) error {
		rd := r.log.Read(events.Ref{Host: hostName, ID: id}, tip.Last)
		defer rd.Close()
		got, err := rd.Next(ctx, patience)
		if err == nil && len(got) == 0 {
			t.Error("the process is not heard")
		}
		return err
	}})
	r.begin()
	r.awaitLease(epoch)
}

// Whoever waits for a host hears at once that it has begun.
func TestALifeTellsThatItHasBegun(t *testing.T) {
	r := newRigOn(t, "direct")
	was := r.cfg.LeaseTTL
	r.cfg.LeaseTTL = time.Hour // so long nothing is told by itself
	defer func() { r.cfg.LeaseTTL = was }()
	r.begin()
	r.awaitLease(0)
}

// What a life that was cut off did not come to remove, the next one does.
func TestARemovalIsFinishedByTheNextLife(t *testing.T) {
	r := newRigOn(t, "direct")
	if err := os.MkdirAll(filepath.Join(r.cfg.DataDir, snapshotDir, string(sandbox.NewSnapshotID())+removed, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.begin()
	r.awaitLease(0)
	r.awaitKept(0)
}

// Whoever holds a box may ask the host: who counts holds the one at a time.
func TestCountingHoldsNobodyUp(t *testing.T) {
	h := &host{boxes: map[sandbox.ID]*box{}}
	b := newBox(h, &sandbox.State{ID: "b"})
	h.boxes[b.id] = b
	b.mu.Lock()
	var counting sync.WaitGroup
	counting.Go(func() { h.counts() })
	for !within(t.Name(), "(*box).count(") { // where it waits for b
		runtime.Gosched()
	}
	if !h.mu.TryLock() {
		t.Error("who waits for one holds all")
	} else {
		h.mu.Unlock()
	}
	b.mu.Unlock()
	counting.Wait()
}

// within reports whether a goroutine that by began is in a function.
func within(by, function string) bool {
	stacks := make([]byte, 1<<20)
	for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if bytes.Contains(stack, []byte(by)) && bytes.Contains(stack, []byte(function)) {
			return true
		}
	}
	return false
}
