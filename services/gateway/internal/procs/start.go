package procs

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/latency"
)

// StartOptions configure a Start.
type StartOptions struct {
	IdempotencyKey string // the client's key: all Starts with it in one sandbox are one process; empty: none
}

// Attached is a process and its record.
type Attached struct {
	ID     process.ID
	Reader *latency.Reader // at seq 0; the caller must close it
}

// Start makes the sandbox's host start a process and returns once the command is stored; the
// record shows the outcome, also a failure to start. With an idempotency key it waits for the
// record's first event.
//
// A start that was refused before anything ran is not final: the next Start with its key is a
// new try with a record of its own ([process.AttemptID]).
//
// Errors: Invalid for a spec that can never run, NotFound unless the sandbox runs, Conflict if
// it is paused or if the key was used with another spec, Unavailable if the host or the log
// does not answer; then the same Start may be retried.
func (ps *Procs) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt StartOptions) (Attached, error) {
	if err := spec.Validate(); err != nil {
		return Attached{}, err
	}
	st, err := ps.lifecycle.FindSandbox(ctx, p, sbx)
	if err != nil {
		return Attached{}, err
	}
	spec.Record = max(spec.Record, st.Request.Record)
	spec.Trace = traceOf(ctx, ps.core.Tracing)
	if spec.Redact, err = st.Request.Patterns(ps.core.Sealer, st.Tenant, string(st.ID)); err != nil {
		return Attached{}, core.LogError("start", string(sbx), err)
	}
	if opt.IdempotencyKey != "" {
		return ps.startKeyed(ctx, p, &st, spec, opt.IdempotencyKey)
	}
	a, _, err := ps.startAs(ctx, p, &st, process.NewID(sbx), spec, ps.core.Log.ReadNew)
	return a, err
}

// startAs sends the command that starts a process with the given id, and returns the
// command's id. read opens the record.
func (ps *Procs) startAs(ctx context.Context, p core.Principal, st *sandbox.State, id process.ID, spec process.Spec, read func(record.Ref) *record.Reader) (Attached, string, error) {
	requested := time.Now()
	now, err := ps.lifecycle.RequireRunning(ctx, p, st.ID)
	if err != nil {
		return Attached{}, "", err
	}
	if err := ps.core.RequireHost(&now); err != nil {
		return Attached{}, "", err
	}
	// Attach before sending the command, so that the first event arrives live.
	reader := read(record.Ref{Host: now.Host, ID: id}).ShownBy(ps.core.View)
	sent, err := ps.sendStart(ctx, &now, id, spec)
	if err != nil {
		reader.Close()
		return Attached{}, "", err
	}
	return Attached{ID: id, Reader: latency.NewReader(reader, &ps.core.Latencies, requested)}, sent, nil
}

// sendStart stores the command, with a sealed environment, and returns its id. Each command has an
// id of its own: the record's first event names the one that claimed it, and no other command for
// the process can start it.
func (ps *Procs) sendStart(ctx context.Context, st *sandbox.State, id process.ID, spec process.Spec) (string, error) {
	deadline := time.Now().Add(ps.core.StartTimeout)
	sealed, err := spec.Seal(ps.core.Sealer, st.Tenant, id)
	if err != nil {
		return "", core.LogError("start", string(id), err)
	}
	cmd := command.Command{
		ID: "start." + string(id) + "." + rand.Text(), Tenant: st.Tenant, Process: id,
		Deadline: deadline, Body: command.Start{Spec: sealed},
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := ps.core.Log.Send(ctx, st.Host, cmd); err != nil {
		return "", core.LogError("start", string(id), err)
	}
	ps.unclaimed.track(pending{
		id: id, command: cmd.ID, host: st.Host, epoch: st.Epoch, tenant: st.Tenant,
		spec: sealed.Public(), hash: spec.Hash(ps.core.Sealer, st.Tenant, st.ID), due: deadline.Add(claimGrace),
	})
	return cmd.ID, nil
}
