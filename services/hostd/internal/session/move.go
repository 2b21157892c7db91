package session

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// A sandbox created from a snapshot with memory has processes from the start. They continue, each
// with a record of its own under the same token; its first event refers to the record that it
// continues, and the seq.

// adopt creates the record of a process that was restored with the memory; mu is
// held.
func (ss *Session) adopt(p *proc, m *wire.Moved) error {
	spec, err := process.ParseSpec(m.Spec) // it shares no memory with m, which is released
	if err == nil {
		err = spec.Validate()
	}
	if err != nil || ss.cfg.From == "" {
		return hostile("%q was not restored from a snapshot", m.Token)
	}
	p.spec, p.hash = spec, spec.Hash(ss.h.cfg.Ring, ss.cfg.Tenant, ss.cfg.ID)
	first := process.Accepted{
		Spec: spec.Public(), SpecHash: p.hash, Tenant: ss.cfg.Tenant,
		From: process.IDOf(m.Token, ss.cfg.FromSandbox), After: m.After,
	}
	ss.restoring.Add(1)
	ss.h.cfg.Spawn("process "+string(p.id), func(ctx context.Context) error { return p.move(ctx, first) })
	return nil
}

// move claims the record of a process that already runs, and publishes until it ends.
func (p *proc) move(ctx context.Context, first process.Accepted) error {
	defer p.close()
	moved := sync.OnceFunc(p.ss.restoring.Done)
	defer moved()
	var err error
	if p.spec, err = p.h.seal(ctx, &p.spec, first.Tenant, p.id); err != nil {
		return p.ended(ctx, err)
	}
	p.entry.sum = process.Summary{
		ID: p.id, Tenant: first.Tenant, Host: p.ref.Host, Epoch: p.h.cfg.Epoch, Spec: p.spec,
		PID: p.known.PID, Started: time.Now(),
	}
	err = p.claim(ctx, first)
	switch {
	case kind.Is(err, kind.Conflict): // a previous run claimed it
		err = p.recover(ctx)
	case err == nil:
		if err = p.h.cfg.Fault("moved"); err == nil {
			p.continueFrom(p.w.Last())
			p.ss.queue.start(p)
		}
	}
	moved()
	if err == nil {
		err = p.publish(ctx)
	}
	return p.ended(ctx, err)
}

// seal returns a spec for the catalog, with a sealed environment if that may be kept. It waits through outages of the log.
func (h *Host) seal(ctx context.Context, spec *process.Spec, tenant string, id process.ID) (process.Spec, error) {
	for try := 0; ; try++ {
		sealed, err := spec.Seal(h.cfg.Ring, tenant, id)
		sealed.Hidden = ""
		if !kind.Is(err, kind.Unavailable) || !waiting.Sleep(ctx, waiting.Delay(try, 100*time.Millisecond, 5*time.Second)) {
			return sealed, err
		}
	}
}

// seedLen is more than any kernel mixes in at once.
const seedLen = 32

// seed returns entropy that differs between instances restored from the same memory.
func seed() []byte {
	b := make([]byte, seedLen)
	rand.Read(b)
	return b
}
