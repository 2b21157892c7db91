package cli

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/hostload"
)

// neighbour is who makes a noise; only its beginning and what it does differ.
type neighbour interface {
	pause(context.Context) error
	resume(context.Context) error
	end(context.Context)
}

// tenant makes it in a sandbox.
type tenant struct {
	b   *bench
	sbx string
}

func (b *bench) noisySandbox(ctx context.Context, n *noise) (neighbour, error) {
	spec := sandboxSpec{TemplateID: "base", Timeout: int64(benchLife / time.Second), PIDs: noisyPIDs}
	sbx, err := b.c.createSandbox(ctx, spec)
	if err != nil {
		return nil, err
	}
	t := &tenant{b, sbx}
	for range n.copies {
		if _, err := b.c.start(ctx, sbx, &command{Cmd: "/bin/bash", Args: []string{"-c", n.script}}); err != nil {
			t.end(ctx)
			return nil, err
		}
	}
	return t, nil
}

func (t *tenant) pause(ctx context.Context) error { return t.b.c.pauseSandbox(ctx, t.sbx) }

func (t *tenant) resume(ctx context.Context) error {
	return t.b.c.resumeSandbox(ctx, t.sbx, benchLife)
}

func (t *tenant) end(ctx context.Context) { t.b.discard(ctx, t.b.c, t.sbx, benchLife) }

// programs make it on bench's own machine, in no sandbox.
type programs struct{ hostload.Load }

func besideHost(ctx context.Context, n *noise) (neighbour, error) {
	l, err := hostload.Begin(ctx, n.copies, n.script)
	return programs{l}, err
}

func (p programs) pause(context.Context) error  { return p.Pause() }
func (p programs) resume(context.Context) error { return p.Resume() }
func (p programs) end(context.Context)          { p.End() }
