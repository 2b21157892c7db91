package hosts

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Drain makes a host stop or resume accepting new sandboxes, and returns when its lease
// shows it: from then on every scheduler respects it. Running sandboxes continue. A
// draining host copies to the store what it alone has and others can use; Undrainable lists
// what is left. It returns NotFound for an unknown host, Unavailable for one that does not
// answer.
func (hs *Hosts) Drain(ctx context.Context, host string, drain bool) error {
	h, err := hs.host(ctx, host)
	if err != nil {
		return err
	}
	if _, err := hs.core.Call(ctx, &sandbox.State{Host: h.Host}, "", ulid.Make().String(), command.Drain{Drain: drain}, hs.core.CallTimeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hs.core.CallTimeout)
	defer cancel()
	if err := hs.awaitDrain(ctx, host, drain); err != nil || !drain {
		return err
	}
	return hs.requestCopies(ctx, host)
}

// awaitDrain returns when a host's lease shows the wanted drain state.
func (hs *Hosts) awaitDrain(ctx context.Context, host string, drain bool) error {
	changed, stop := hs.core.View.Changes()
	defer stop()
	for {
		if h, ok := hs.core.View.Host(host); ok && h.Draining == drain && !h.Starting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return kind.Wrap(kind.Unavailable, "drain host", host, ctx.Err())
		}
	}
}
