package core

import (
	"bytes"
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// StartOptions refine a Start.
type StartOptions struct {
	IdempotencyKey string // of the client: all Starts with it in one sandbox are one process; empty: none
}

// Attached is a process and its record.
type Attached struct {
	ID     process.ID
	Reader *events.Reader // at seq 0; to be closed
}

// Start asks the sandbox's host to start a process and returns once the command
// is stored; the record tells the rest, also that it could not be started. With
// an idempotency key it waits for the record's first event.
//
// Errors: Invalid for a spec that can never run, NotFound unless the sandbox
// runs, Conflict if it is paused or the key was used with another spec, Unavailable if the host
// or the log does not answer; the same Start may then be tried again.
func (c *Core) Start(ctx context.Context, p Principal, sbx sandbox.ID, spec process.Spec, opt StartOptions) (Attached, error) {
	if err := spec.Validate(); err != nil {
		return Attached{}, err
	}
	st, err := c.find(ctx, p, sbx)
	if err != nil {
		return Attached{}, err
	}
	id, known := process.NewID(sbx), false
	if opt.IdempotencyKey != "" {
		id = process.KeyedID(sbx, opt.IdempotencyKey)
		if known, err = c.started(ctx, &st, id); err != nil {
			return Attached{}, err
		}
	}
	if !known {
		if st, err = c.running(ctx, p, sbx); err != nil {
			return Attached{}, err
		}
		if err := c.alive(&st); err != nil {
			return Attached{}, err
		}
	}
	ref := events.Ref{Host: st.Host, ID: id}
	// Attached before the command is sent, so that the first event is caught live.
	reader := c.log.Read(ref, 0)
	if !known {
		if err := c.sendStart(ctx, &st, id, spec); err != nil {
			reader.Close()
			return Attached{}, err
		}
	}
	if opt.IdempotencyKey != "" {
		if err := c.sameSpec(ctx, ref, spec.Hash()); err != nil {
			reader.Close()
			return Attached{}, err
		}
	}
	return Attached{ID: id, Reader: reader}, nil
}

// started reports whether the catalogue has the process already. Where it could
// not be started any more, a miss is believed only after the view has caught up.
func (c *Core) started(ctx context.Context, st *sandbox.State, id process.ID) (bool, error) {
	_, _, ok := c.view.Process(id)
	if ok || st.Live() {
		return ok, nil
	}
	if err := c.Sync(ctx); err != nil {
		return false, err
	}
	_, _, ok = c.view.Process(id)
	return ok, nil
}

// sendStart stores the command. Its id comes from the process's, so that a Start
// that is tried again, here or at another gateway, is stored once.
func (c *Core) sendStart(ctx context.Context, st *sandbox.State, id process.ID, spec process.Spec) error {
	deadline := time.Now().Add(c.cfg.StartTimeout)
	cmd := events.Command{
		ID: "start." + string(id), Tenant: st.Tenant, Process: id,
		Deadline: deadline, Body: events.Start{Spec: spec},
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := c.log.Send(ctx, st.Host, cmd); err != nil {
		return logError("start", string(id), err)
	}
	c.expect(pending{
		id: id, host: st.Host, epoch: st.Epoch, tenant: st.Tenant,
		spec: spec.Public(), hash: spec.Hash(), due: deadline.Add(claimGrace),
	})
	return nil
}

// sameSpec waits for the record's first event and compares its spec with ours.
func (c *Core) sameSpec(ctx context.Context, ref events.Ref, hash []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout+claimGrace)
	defer cancel()
	// A reader of its own: the caller's must stay at the start.
	r := c.log.Read(ref, 0)
	defer r.Close()
	for {
		batch, err := r.Next(ctx, time.Second)
		switch {
		case kind.Is(err, kind.Gone): // too old to compare; whoever reads is told
			return nil
		case err != nil:
			return &kind.Error{Op: "start", ID: string(ref.ID), Kind: kind.Unavailable,
				Msg: "the sandbox's host does not answer, try again", Err: err}
		case len(batch) == 0:
			continue
		}
		if a, ok := batch[0].Body.(process.Accepted); ok && !bytes.Equal(a.SpecHash, hash) {
			return kind.New(kind.Conflict, "start", string(ref.ID), "the idempotency key was used with another command")
		}
		return nil
	}
}
