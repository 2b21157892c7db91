package bench

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/hostload"
)

// load is a source of load that can be paused: a sandbox or programs on the host.
type load interface {
	pause(context.Context) error
	resume(context.Context) error
	end(context.Context)
}

// createBenchSandbox is a sandbox created by bench, kept until bench ends it.
type benchSandbox struct {
	b        *bench
	sbx      string
	lifetime time.Duration // timeout if bench is killed
	stop     context.CancelFunc
	done     sync.WaitGroup
}

func (b *bench) createBenchSandbox(ctx context.Context, spec client.SandboxSpec) (*benchSandbox, error) {
	sbx, lifetime, err := b.c.CreateFor(ctx, spec, benchLifetime, false)
	if err != nil {
		return nil, err
	}
	x := &benchSandbox{b: b, sbx: sbx, lifetime: lifetime}
	ctx, x.stop = context.WithCancel(ctx)
	x.done.Go(func() { client.ExtendTimeout(ctx, b.c, sbx, lifetime) })
	return x, nil
}

func (x *benchSandbox) end(ctx context.Context) {
	x.stop()
	x.done.Wait()
	x.b.Discard(ctx, x.b.c, x.sbx, x.lifetime)
}

// sandboxLoad is load in a sandbox.
type sandboxLoad struct{ *benchSandbox }

func (b *bench) noisySandbox(ctx context.Context, n *noise) (load, error) {
	own, err := b.createBenchSandbox(ctx, client.SandboxSpec{TemplateID: "base", PIDs: noisyPIDs})
	if err != nil {
		return nil, err
	}
	t := sandboxLoad{own}
	for range n.copies {
		if _, err := b.c.Start(ctx, t.sbx, &client.Command{Cmd: "/bin/bash", Args: []string{"-c", n.script}}); err != nil {
			t.end(ctx)
			return nil, err
		}
	}
	return t, nil
}

func (t sandboxLoad) pause(ctx context.Context) error { return t.b.c.PauseSandbox(ctx, t.sbx) }

func (t sandboxLoad) resume(ctx context.Context) error {
	return t.b.c.ResumeSandbox(ctx, t.sbx, t.lifetime)
}

// hostLoad is load on bench's own machine, outside of any sandbox.
type hostLoad struct{ hostload.Load }

func besideHost(ctx context.Context, n *noise) (load, error) {
	l, err := hostload.Begin(ctx, n.copies, n.script)
	return hostLoad{l}, err
}

func (p hostLoad) pause(context.Context) error  { return p.Pause() }
func (p hostLoad) resume(context.Context) error { return p.Resume() }
func (p hostLoad) end(context.Context)          { p.End() }
