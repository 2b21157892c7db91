package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/audit"
	"github.com/millrace/millrace/services/hostd/internal/session"
)

// newSessions returns the sessions of the run. Its epoch and its view must be known.
func (h *host) newSessions() *session.Host {
	return session.NewHost(session.HostConfig{
		Name: h.cfg.Name, Epoch: h.epoch, Limits: h.cfg.limits(), Log: h.log, View: h.view, Commands: h.commands,
		Abort: h.abort, Fault: h.fault, Go: h.wg.Go, Spawn: h.spawn, Slog: h.slog,
	})
}

// newAudits returns the auditor of the run.
func (h *host) newAudits() *audit.Auditor {
	return audit.New(audit.Config{
		Host: h.cfg.Name, Epoch: h.epoch, Log: h.log, View: h.view, Complete: h.completeRecord, Spawn: h.spawn, Slog: h.slog,
	})
}

// completeRecord gives the record of a process that ended the end that the catalogue has.
func (h *host) completeRecord(ctx context.Context, id process.ID) error {
	sb := h.sandboxes.get(id.Sandbox())
	if sb == nil {
		return h.sessions.Complete(ctx, nil, id)
	}
	select {
	case <-sb.session.Ready():
	case <-sb.gone:
	case <-ctx.Done():
		return nil
	}
	return h.sessions.Complete(ctx, sb.session, id)
}

// dispatch handles or parks a command, without waiting.
func (h *host) dispatch(c events.Command) {
	if drain, ok := c.Body.(events.Drain); ok {
		h.spawn("drain", func(context.Context) error { return h.drain(c, drain.Drain) })
		return
	}
	if !h.sandboxes.park(c) {
		h.deliver(c)
	}
}

// deliver passes a command to its sandbox, or refuses it, without waiting.
func (h *host) deliver(c events.Command) {
	sb := h.sandboxes.get(c.Process.Sandbox())
	if start, ok := c.Body.(events.Start); ok {
		var ss *session.Session
		if sb != nil {
			ss = sb.session
		}
		h.sessions.Start(ss, c, start.Spec)
		return
	}
	if err := c.Expired(time.Now()); err != nil {
		h.commands.Refuse(c, err)
		return
	}
	if sb == nil {
		h.commands.Refuse(c, kind.New(kind.NotFound, "command", c.ID, "the sandbox does not run here"))
		return
	}
	if snap, ok := c.Body.(events.TakeSnapshot); ok {
		h.spawn("snapshot "+string(sb.id), func(ctx context.Context) error { return sb.snapshots.handle(ctx, c, snap) })
		return
	}
	sb.session.Deliver(c)
}

// drain handles a command to drain the host, or to end that. It is journaled, so that it holds
// for later runs, and in the lease before the reply.
func (h *host) drain(c events.Command, drain bool) error {
	if err := h.journal.SetDraining(drain); err != nil {
		h.commands.Refuse(c, err)
		return err
	}
	h.leases.SetDraining(drain)
	h.leases.Renew()
	h.commands.End(c.Rev)
	h.commands.Answer(c, events.Reply{})
	return nil
}
