package core

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
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
	if _, err := c.Call(ctx, &sandbox.State{Host: h.Host}, "", ulid.Make().String(), events.Drain{Drain: drain}, c.CallTimeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	if err := c.awaitDrain(ctx, host, drain); err != nil || !drain {
		return err
	}
	return c.requestCopies(ctx, host)
}

// awaitDrain returns when a host's lease shows the wanted drain state.
func (c *Core) awaitDrain(ctx context.Context, host string, drain bool) error {
	changed, stop := c.View.Changes()
	defer stop()
	for {
		if h, ok := c.View.Host(host); ok && h.Draining == drain && !h.Starting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return kind.Wrap(kind.Unavailable, "drain host", host, ctx.Err())
		}
	}
}
