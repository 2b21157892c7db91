package live

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// DestroyTimeout is the most that Destroy takes.
const DestroyTimeout = 5 * time.Second

// Box is a running sandbox as both drivers see it: a driver.Instance.
type Box struct {
	State State
	Dir   string
	Proc  *Proc

	// Kill ends every process of the sandbox and returns when they are gone.
	Kill func(context.Context) error
	// Sweep removes what is left of the sandbox once its processes are gone.
	Sweep func(context.Context) error

	mu   sync.Mutex
	gone bool // by mu: Destroy has succeeded
}

// Dial is driver.Instance.Dial.
func (b *Box) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := Dial(ctx, b.Dir)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, kind.Wrap(kind.Unavailable, "dial shim", string(b.State.ID), err)
	}
	return conn, nil
}

// Done is driver.Instance.Done.
func (b *Box) Done() <-chan struct{} { return b.Proc.Done() }

// Pause is driver.Instance.Pause.
func (b *Box) Pause(context.Context) error { return b.cannot("pause") }

// Resume is driver.Instance.Resume.
func (b *Box) Resume(context.Context) error { return b.cannot("resume") }

// Snapshot is driver.Instance.Snapshot.
func (b *Box) Snapshot(context.Context, string, bool) error { return b.cannot("snapshot") }

// Stats is driver.Instance.Stats.
func (b *Box) Stats(context.Context) (driver.Stats, error) { return driver.Stats{}, nil }

func (b *Box) cannot(what string) error {
	return kind.Newf(kind.Unimplemented, what, string(b.State.ID), "driver %s cannot %s a sandbox", b.State.Driver, what)
}

// Destroy is driver.Instance.Destroy.
func (b *Box) Destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, DestroyTimeout)
	defer cancel()
	if err := b.Kill(ctx); err != nil {
		return kind.Wrap(kind.Of(err), "kill sandbox", string(b.State.ID), err)
	}
	b.Proc.Close()
	if err := b.Sweep(ctx); err != nil {
		return kind.Wrap(kind.Of(err), "remove sandbox", string(b.State.ID), err)
	}
	b.gone = true
	return nil
}

// End kills p and waits until it has ended.
func End(ctx context.Context, p *Proc) error {
	select {
	case <-p.Done():
		return nil
	default:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
