package core

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Call sends a command about a sandbox, and with proc about one of its processes, to the
// sandbox's host and waits for the reply. It does not retry: a lost reply is not sent again.
func (c *Core) Call(ctx context.Context, st *sandbox.State, proc process.ID, id string, body command.Body, within time.Duration) (command.Reply, error) {
	if err := c.RequireHost(st); err != nil {
		return command.Reply{}, err
	}
	deadline := time.Now().Add(within)
	asked := ctx
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r, err := c.Log.Call(ctx, st.Host, command.Command{
		ID: id, Tenant: st.Tenant, Process: proc, Deadline: deadline, Body: body,
	})
	if err != nil && asked.Err() != nil {
		// The caller's own deadline passed, which does not mean that the host failed.
		return r, kind.Wrap(kind.Of(asked.Err()), "call", string(proc), asked.Err())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return r, &kind.Error{Op: "call", ID: string(proc), Kind: kind.Unavailable, Msg: "the sandbox's host does not answer", Err: err}
	}
	return r, LogError("call", string(proc), err)
}
