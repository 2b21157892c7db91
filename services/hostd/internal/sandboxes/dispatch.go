package sandboxes

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/session"
)

// Dispatch handles or parks a command for a sandbox, without waiting.
func (set *Set) Dispatch(c command.Command) {
	if !set.park(c) {
		set.deliver(c)
	}
}

// deliver passes a command to its sandbox, or refuses it, without waiting.
func (set *Set) deliver(c command.Command) {
	sb := set.get(c.Process.Sandbox())
	if start, ok := c.Body.(command.Start); ok {
		var ss *session.Session
		if sb != nil {
			ss = sb.session
		}
		set.cfg.Sessions.Start(ss, c, start.Spec)
		return
	}
	if err := c.Expired(time.Now()); err != nil {
		set.cfg.Commands.Refuse(c, err)
		return
	}
	if sb == nil {
		set.cfg.Commands.Refuse(c, kind.New(kind.NotFound, "command", c.ID, "the sandbox does not run here"))
		return
	}
	if snap, ok := c.Body.(command.TakeSnapshot); ok {
		set.cfg.Spawn("snapshot "+string(sb.id), func(ctx context.Context) error { return sb.snapshots.handle(ctx, c, snap) })
		return
	}
	sb.session.Deliver(c)
}

// Complete gives the record of a process that ended the end that the catalog has.
func (set *Set) Complete(ctx context.Context, id process.ID) error {
	sb := set.get(id.Sandbox())
	if sb == nil {
		return set.cfg.Sessions.Complete(ctx, nil, id)
	}
	select {
	case <-sb.session.Ready():
	case <-sb.gone:
	case <-ctx.Done():
		return nil
	}
	return set.cfg.Sessions.Complete(ctx, sb.session, id)
}
