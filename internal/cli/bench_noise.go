package cli

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hostload"
)

// neighbour is a source of load that can be paused: a sandbox or programs on the host.
type neighbour interface {
	pause(context.Context) error
	resume(context.Context) error
	end(context.Context)
}

// box is a sandbox created by bench, kept until bench ends it.
type box struct {
	b    *bench
	sbx  string
	life time.Duration // timeout if bench is killed
	stop context.CancelFunc
	done sync.WaitGroup
}

func (b *bench) box(ctx context.Context, spec sandboxSpec) (*box, error) {
	sbx, life, err := b.c.createFor(ctx, spec, benchLife, false)
	if err != nil {
		return nil, err
	}
	x := &box{b: b, sbx: sbx, life: life}
	ctx, x.stop = context.WithCancel(ctx)
	x.done.Go(func() { prolong(ctx, b.c, sbx, life) })
	return x, nil
}

func (x *box) end(ctx context.Context) {
	x.stop()
	x.done.Wait()
	x.b.discard(ctx, x.b.c, x.sbx, x.life)
}

// tenant is load in a sandbox.
type tenant struct{ *box }

func (b *bench) noisySandbox(ctx context.Context, n *noise) (neighbour, error) {
	own, err := b.box(ctx, sandboxSpec{TemplateID: "base", PIDs: noisyPIDs})
	if err != nil {
		return nil, err
	}
	t := tenant{own}
	for range n.copies {
		if _, err := b.c.start(ctx, t.sbx, &command{Cmd: "/bin/bash", Args: []string{"-c", n.script}}); err != nil {
			t.end(ctx)
			return nil, err
		}
	}
	return t, nil
}

func (t tenant) pause(ctx context.Context) error { return t.b.c.pauseSandbox(ctx, t.sbx) }

func (t tenant) resume(ctx context.Context) error {
	return t.b.c.resumeSandbox(ctx, t.sbx, t.life)
}

// programs is load on bench's own machine, outside of any sandbox.
type programs struct{ hostload.Load }

func besideHost(ctx context.Context, n *noise) (neighbour, error) {
	l, err := hostload.Begin(ctx, n.copies, n.script)
	return programs{l}, err
}

func (p programs) pause(context.Context) error  { return p.Pause() }
func (p programs) resume(context.Context) error { return p.Resume() }
func (p programs) end(context.Context)          { p.End() }
