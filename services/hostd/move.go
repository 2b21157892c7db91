package hostd

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// A sandbox that begins from a snapshot with the memory has processes from the
// first. They go on, and each has a record of its own, under the same token; its
// first event says of which record it is the continuation, and from where.

// adopt gives a record to a process that came with the memory; box.mu is held.
func (b *box) adopt(p *proc, m *wire.Moved) error {
	spec, err := process.ParseSpec(m.Spec) // it shares no memory with m, which is let go
	if err == nil {
		err = spec.Validate()
	}
	if err != nil || b.req.From == "" {
		return b.hostile("%q comes from nowhere", m.Token)
	}
	p.spec, p.hash = spec, spec.Hash()
	first := process.Accepted{
		Spec: spec.Public(), SpecHash: p.hash, Tenant: b.tenant,
		From: process.IDOf(m.Token, b.req.FromSandbox), After: m.After,
	}
	b.moving.Add(1)
	b.h.spawn("process "+string(p.id), func() error { return p.move(b.h.life, first) })
	return nil
}

// move claims the record of a process that runs already, and sees it to its end.
func (p *proc) move(ctx context.Context, first process.Accepted) error {
	defer p.close()
	moved := sync.OnceFunc(p.b.moving.Done)
	defer moved()
	p.sum = process.Summary{
		ID: p.id, Tenant: first.Tenant, Host: p.ref.Host, Epoch: p.h.epoch, Spec: p.spec,
		PID: p.known.PID, Started: time.Now(),
	}
	err := p.claim(ctx, first)
	switch {
	case kind.Is(err, kind.Conflict): // an earlier life came so far
		err = p.recover(ctx)
	case err == nil:
		if err = p.h.fault("moved"); err == nil {
			p.goOn(p.w.Last())
			p.setSent()
		}
	}
	moved()
	if err == nil {
		err = p.publish(ctx)
	}
	return p.ended(ctx, err)
}

// seedLen is more than any kernel mixes in at once.
const seedLen = 32

// seed is what no two places have that began with the same memory.
func seed() []byte {
	b := make([]byte, seedLen)
	rand.Read(b) //nolint:errcheck // never fails
	return b
}
