package core

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	// readyWithin is how long a new sandbox is not given to its client for want of
	// its template's command being ready. That it can be was seen when it was built.
	readyWithin = 5 * time.Second
	readyPause  = 100 * time.Millisecond
	startKey    = "millrace.start"
)

// Shell returns the spec of a command that a template or a build names: bash runs it, as
// clients do it, or the shell that there is instead. It is not counted as a client's command.
func Shell(command string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", `test -x /bin/bash && exec /bin/bash -l -c "$0"; exec /bin/sh -l -c "$0"`, command}, Helper: true}
}

// begin runs the command that a template's sandboxes begin with, and waits a
// little for it to be ready. A sandbox whose command does not run is one all the
// same: its record tells.
func (c *Core) begin(ctx context.Context, p Principal, st *sandbox.State) {
	err := c.Begin(ctx, p, st.ID, st.Request.Start)
	if err == nil && st.Request.Ready != "" {
		within, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		err = c.AwaitReady(within, p, st.ID, st.Request.Ready)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.slog.Warn("a template's command", "sandbox", st.ID, "err", err)
	}
}

// Begin starts the command that a sandbox begins with, once.
func (c *Core) Begin(ctx context.Context, p Principal, id sandbox.ID, command string) error {
	a, err := c.Start(ctx, p, id, Shell(command), StartOptions{IdempotencyKey: startKey})
	if err == nil {
		a.Reader.Close()
	}
	return err
}

// AwaitReady runs a command until it ends with 0. An error is that of the command
// Begin started, if that ended otherwise before; or ctx's.
func (c *Core) AwaitReady(ctx context.Context, p Principal, id sandbox.ID, command string) error {
	for n := 0; ; n++ {
		ok, err := c.try(ctx, p, id, Shell(command), "millrace.ready."+strconv.Itoa(n))
		if ok || err != nil {
			return err
		}
		if _, sum := c.lastTry(id, startKey); sum != nil && sum.Exit != nil && (sum.Exit.Code == nil || *sum.Exit.Code != 0) {
			return kind.Newf(kind.Precondition, "start", string(id), "the start command ended with %s", Ending(sum.Exit))
		}
		t := time.NewTimer(readyPause << min(n, 4))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// try runs a command and reports whether it ended with 0.
func (c *Core) try(ctx context.Context, p Principal, id sandbox.ID, spec process.Spec, key string) (bool, error) {
	a, err := c.Start(ctx, p, id, spec, StartOptions{IdempotencyKey: key})
	if err != nil {
		return false, err
	}
	defer a.Reader.Close()
	for {
		batch, err := a.Reader.Next(ctx, time.Second)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, e := range batch {
			if f, ok := e.Body.(process.Exited); ok {
				return f.Exit.Code != nil && *f.Exit.Code == 0, nil
			}
			if f, ok := e.Body.(process.Finished); ok {
				return f.Exit.Code != nil && *f.Exit.Code == 0, nil
			}
		}
	}
}

// Ending says how a process ended.
func Ending(x *process.Exit) string {
	switch {
	case x.Message != "":
		return x.Message
	case x.Code != nil && x.Signal == 0:
		return "exit status " + strconv.Itoa(int(*x.Code))
	case x.Signal != 0:
		return "signal " + strconv.Itoa(int(x.Signal))
	}
	return string(x.Cause)
}
