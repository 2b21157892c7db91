package hostd

import (
	"context"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/hostd/internal/audit"
	"github.com/millrace/millrace/services/hostd/internal/sandboxes"
	"github.com/millrace/millrace/services/hostd/internal/session"
)

// newSessions returns the sessions of the run. Its epoch and its view must be known.
func (h *host) newSessions(ring *seal.Ring) *session.Host {
	return session.NewHost(session.HostConfig{
		Name: h.cfg.Name, Epoch: h.epoch, Limits: h.cfg.limits(), Log: h.log, View: h.view, Ring: ring, Commands: h.commands,
		Abort: h.abort, Fault: h.fault, Go: h.wg.Go, Spawn: h.spawn, Slog: h.slog,
	})
}

// newAudits returns the auditor of the run, whose lease had a checkpoint when it was taken.
func (h *host) newAudits(checkpoint fleet.Checkpoint) *audit.Auditor {
	return audit.New(audit.Config{
		Host: h.cfg.Name, Epoch: h.epoch, Log: h.log, View: h.view, Checkpoint: checkpoint, Checkpointed: h.leases.SetCheckpoint,
		Complete: h.sandboxes.Complete, Spawn: h.spawn, Slog: h.slog,
	})
}

// dispatch handles a command, or passes it to its sandbox, without waiting.
func (h *host) dispatch(c command.Command) {
	if drain, ok := c.Body.(command.Drain); ok {
		h.spawn("drain", func(context.Context) error { return h.drain(c, drain.Drain) })
		return
	}
	h.sandboxes.Dispatch(c)
}

// drain handles a command to drain the host, or to end that. It is journaled, so that it holds
// for later runs, and in the lease before the reply.
func (h *host) drain(c command.Command, drain bool) error {
	if err := h.journal.SetDraining(drain); err != nil {
		h.commands.Refuse(c, err)
		return err
	}
	h.setDraining(drain)
	h.leases.Renew()
	h.commands.End(c.Rev)
	h.commands.Answer(c, command.Reply{})
	return nil
}

// setDraining sets whether the host accepts no new sandbox.
func (h *host) setDraining(drain bool) {
	h.leases.SetDraining(drain)
	h.warm.SetDraining(drain)
}

// sandboxConfig returns what the sandboxes use of the host. All of it must be there.
func (h *host) sandboxConfig(ring *seal.Ring) sandboxes.Config {
	return sandboxes.Config{
		Host: h.cfg.Name, SnapshotsDir: h.snapshotsDir(), SampleEvery: h.cfg.SampleEvery, Spool: h.openSpool,
		Log: h.log, Meter: h.log.Meter(), View: h.view, Ring: ring, Journal: h.journal, Commands: h.commands, Sessions: h.sessions, Audits: h.audits,
		Drivers: h.drivers, Shim: h.shim, Instances: h.instances, Warm: h.warm, Network: h.network, Disk: h.disk,
		Cache: h.cache, Templates: h.templates, Snapshots: h.snapshots, Volumes: h.volumes,
		Fault: h.fault, Spawn: h.spawn, Slog: h.slog,
	}
}
