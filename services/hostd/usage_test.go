package hostd

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

func (r *rig) meter() *meter.Store {
	r.t.Helper()
	m := r.log.Meter()
	if err := m.Start(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) awaitUsage(m *meter.Store, sbx sandbox.ID, done func(*usage.Fact) bool) usage.Fact {
	r.t.Helper()
	f, err := m.Await(r.ctx(), tenant, string(sbx), done)
	if err != nil {
		r.t.Fatalf("usage %+v: %v", f, err)
	}
	return f
}

// What a sandbox used is stored while it runs and at its end, also by the next run of its host,
// which continues from what the previous one stored.
func TestUsageIsStored(t *testing.T) {
	r := newRig(t)
	r.cfg.SampleEvery = 50 * time.Millisecond
	r.begin()
	r.awaitLease(0)
	m := r.meter()
	sbx := r.sandbox()
	r.awaitUsage(m, sbx, func(f *usage.Fact) bool { return f.Rev > 0 })
	burn := r.start(sbx, process.Spec{Cmd: "sh", Args: []string{"-c", "while :; do :; done"}})
	while := r.awaitUsage(m, sbx, func(f *usage.Fact) bool { return f.CPU() > time.Second })
	r.kill()
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	h, _ := r.view.Host(hostName)
	r.begin()
	r.awaitLease(h.Epoch)
	adopted := r.awaitUsage(m, sbx, func(f *usage.Fact) bool { return f.CPU() > while.CPU() })
	r.stopSandbox(sbx)
	s := r.awaitPhase(sbx, sandbox.PhaseDestroyed)
	if err := m.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	f, _ := m.Fact(tenant, string(sbx))
	if !f.Over() || f.LastKnown || f.CPU() < adopted.CPU() || f.CPU() != f.Counter || f.Days[0].Sandboxes != 1 || !f.Started.Equal(s.Started) || f.Ended.After(s.Ended) {
		t.Errorf("%+v of a sandbox that ran from %v to %v", f, s.Started, s.Ended)
	}
	r.whole(burn)
}
