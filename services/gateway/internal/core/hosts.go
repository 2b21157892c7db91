package core

import (
	"context"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Drain makes a host stop or resume accepting new sandboxes, and returns when its lease
// shows it: from then on every scheduler respects it. Running sandboxes continue. A
// draining host copies to the store what it alone has and others can use; Held lists what
// is left. It returns NotFound for an unknown host, Unavailable for one that does not
// answer.
func (c *Core) Drain(ctx context.Context, host string, drain bool) error {
	h, err := c.host(ctx, host)
	if err != nil {
		return err
	}
	t := target{st: sandbox.State{Host: h.Host}, sum: process.Summary{}}
	if _, err := c.call(ctx, t, newID(0), events.Drain{Drain: drain}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	if err := c.awaitDrain(ctx, host, drain); err != nil || !drain {
		return err
	}
	return c.requestCopies(ctx, host)
}

// awaitDrain returns when a host's lease shows the wanted drain state.
func (c *Core) awaitDrain(ctx context.Context, host string, drain bool) error {
	changed, stop := c.view.Changes()
	defer stop()
	for {
		if h, ok := c.view.Host(host); ok && h.Draining == drain && !h.Starting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return kind.Wrap(kind.Unavailable, "drain host", host, ctx.Err())
		}
	}
}
