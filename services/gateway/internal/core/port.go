package core

import (
	"context"
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
)

// DialPort opens a stream to a port of a running sandbox. It does not authorize: the caller
// must. It returns NotFound unless the sandbox runs, Precondition if nothing listens on the
// port, and Unavailable if the sandbox cannot be reached.
func (c *Core) DialPort(ctx context.Context, id sandbox.ID, port int) (*mux.Stream, error) {
	ok, err := c.Wake(ctx, id)
	if err != nil {
		return nil, err
	}
	st, found := c.View.Sandbox(id)
	if !ok || !found {
		return nil, NoSandbox(id)
	}
	if err := c.RequireHost(&st); err != nil {
		return nil, err
	}
	return c.openStream(ctx, &st, strconv.Itoa(port))
}

// openStream opens a stream to a target in a running sandbox: a port, or its files.
func (c *Core) openStream(ctx context.Context, st *sandbox.State, target string) (*mux.Stream, error) {
	host, _ := c.View.Host(st.Host)
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	s, err := c.Tunnels.Open(ctx, st.Host, host.Epoch, string(st.ID)+":"+target)
	if kind.Is(err, kind.Deadline) {
		return nil, &kind.Error{Op: "open stream", ID: string(st.ID), Kind: kind.Unavailable, Msg: "the sandbox's host does not answer", Err: err}
	}
	return s, err
}
