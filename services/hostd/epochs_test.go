package hostd

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// serve runs the host as its role does, and returns a function that ends it and returns its
// error.
func (r *rig) serve() (end func() error) {
	ctx, stop := context.WithCancel(context.Background())
	l := &hostRun{stop: stop, done: make(chan struct{})}
	cfg := r.cfg
	go func() {
		defer close(l.done)
		l.err = Serve(ctx, cfg)
	}()
	r.mu.Lock()
	r.run = l
	r.mu.Unlock()
	return func() error {
		r.kill()
		return l.err
	}
}

// A host that was fenced restarts with a new epoch and keeps its running processes.
func TestFencedHostRestarts(t *testing.T) {
	r := newRigOn(t, "direct")
	end := r.serve()
	epoch := r.awaitLease(0)
	sbx := r.sandbox()
	id := r.start(sbx, process.Spec{Cmd: "sh", Args: []string{"-c", "echo ready; read x; echo more; exit 3"}, Stdin: true})
	r.awaitOutput(id, "ready")
	for range 2 {
		r.declareGone()
		epoch = r.awaitLease(epoch)
	}
	r.send(id, command.Stdin{Data: []byte("\n")})
	if rec := r.whole(id); describe(rec.end()) != "exited 3" || string(rec.out[process.Stdout]) != "ready\nmore\n" {
		t.Errorf("%q, %s", rec.out[process.Stdout], describe(rec.end()))
	}
	if err := end(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// A host whose name another host uses waits until that host's lease ends.
func TestFencedHostWaitsForTheOtherHostsLease(t *testing.T) {
	r := newRigOn(t, "direct")
	r.cfg.LeaseTTL = 3 * time.Second
	end := r.serve()
	epoch := r.awaitLease(0)
	rev := r.takeOver(epoch + 1)
	taken := time.Now()
	heartbeat := time.NewTicker(r.cfg.LeaseTTL / 4)
	defer heartbeat.Stop()
	for range 8 {
		<-heartbeat.C
		lease, _, _, err := r.log.Lease(r.ctx(), hostName)
		if err == nil {
			rev, err = r.log.PutLease(r.ctx(), lease, rev)
		}
		if err != nil {
			t.Fatalf("the other host's renewal: %v", err)
		}
	}
	if got := r.awaitLease(epoch + 1); got != epoch+2 {
		t.Errorf("epoch %d, want %d", got, epoch+2)
	}
	if since := time.Since(taken); since < 2*r.cfg.LeaseTTL {
		t.Errorf("it took its lease back after %v", since)
	}
	if err := end(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// takeOver takes the host's lease like another host of its name.
func (r *rig) takeOver(epoch uint64) (rev uint64) {
	r.t.Helper()
	for {
		lease, rev, _, err := r.log.Lease(r.ctx(), hostName)
		if err != nil {
			r.t.Fatal(err)
		}
		lease.Epoch, lease.Instance, lease.Draining = epoch, "other", true
		rev, err = r.log.PutLease(r.ctx(), lease, rev)
		if err == nil {
			return rev
		}
		if !isKind(err, kind.Conflict) {
			r.t.Fatal(err)
		}
	}
}

// A host that does not receive the acks of its renewals keeps its lease.
func TestHostKeepsItsLeaseIfAcksAreLost(t *testing.T) {
	srv := eventstest.StartListening(t)
	proxy := eventstest.StartProxy(t, srv.Addr())
	log, behind := eventstest.Open(t, srv), proxy.Open(t)
	r := newHost(t, &rig{srv: srv, log: log, view: eventstest.View(t, log)}, hostName, "direct")
	r.cfg.Log = behind
	l := r.begin()
	epoch := r.awaitLease(0)
	for lost := 0; lost < 2; {
		before := r.leaseRev()
		proxy.Mute()
		if r.renewed(before, r.cfg.LeaseTTL/2) {
			lost++ // otherwise the ack of the previous renewal was lost
		}
		proxy.Unmute()
		if !r.renewed(r.leaseRev(), testTimeout) {
			t.Fatal("the lease is not renewed any more")
		}
	}
	select {
	case <-l.done:
		t.Fatalf("the host ended: %v", l.err)
	default:
	}
	if got := r.awaitLease(0); got != epoch {
		t.Errorf("epoch %d, want %d", got, epoch)
	}
}

func (r *rig) leaseRev() uint64 {
	r.t.Helper()
	_, rev, _, err := r.log.Lease(r.ctx(), hostName)
	if err != nil {
		r.t.Fatal(err)
	}
	return rev
}

// renewed reports whether the lease was renewed after rev in time.
func (r *rig) renewed(rev uint64, within time.Duration) bool {
	changed, stop := r.view.Changes()
	defer stop()
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		if h, _ := r.view.Host(hostName); h.Rev > rev {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		}
	}
}
