package builder

import (
	"context"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

// Provisioner creates sandboxes.
type Provisioner interface {
	EnsureSandbox(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error)
}

// Sandboxes are the sandboxes that exist.
type Sandboxes interface {
	Sandbox(p core.Principal, id sandbox.ID) (sandbox.State, error)
	DestroySandbox(ctx context.Context, p core.Principal, id sandbox.ID) error
}

// sandbox returns the sandbox in which step n runs. If no host has free capacity, it waits.
func (ls *layers) sandbox(ctx context.Context, from origin, f settings, n int) (sandbox.ID, error) {
	req := ls.requested(from, f)
	what := "sandbox."
	if _, dropped := ls.layerID(n); dropped > 0 { // the sandbox of the dropped layer has ended
		what += strconv.Itoa(dropped) + "."
	}
	for try := 0; ; try++ {
		id := sandbox.KeyedID(ls.key(what+strconv.Itoa(try), n)) // a refused id stays refused
		if st, ok := ls.failedSandbox(id); ok && st.Request.From != from.snap.ID {
			continue // it was for a layer that the build no longer uses
		}
		_, err := ls.provisioner.EnsureSandbox(ctx, ls.principal, id, req)
		if _, ok := ls.failedSandbox(id); ok && kind.Is(err, kind.Unavailable) {
			return id, &sandboxError{err, from.snap}
		}
		if !kind.Is(err, kind.Exhausted) || try == maxTries {
			return id, err
		}
		if !waiting.Sleep(ctx, waiting.Delay(try, time.Second, maxBackoff)) {
			return id, ctx.Err()
		}
	}
}

// sandboxError is the error of a sandbox that could not be created on a layer.
type sandboxError struct {
	err error
	on  sandbox.Snapshot
}

func (u *sandboxError) Error() string { return u.err.Error() }
func (u *sandboxError) Unwrap() error { return u.err }

// Limits of the wait for capacity, about five minutes in total.
const (
	maxTries   = 32
	maxBackoff = 10 * time.Second
)

// failedSandbox returns the sandbox and true if it ended before it ran.
func (ls *layers) failedSandbox(id sandbox.ID) (sandbox.State, bool) {
	st, err := ls.sandboxes.Sandbox(ls.principal, id)
	return st, err == nil && st.Over() && st.Started.IsZero()
}

func (ls *layers) requested(from origin, f settings) sandbox.Requested {
	s := ls.record.current()
	req := sandbox.Requested{
		Template: from.template, Built: s.Request.Template, Build: string(s.ID), Alias: s.Request.Name,
		Defaults: sandbox.Defaults{Env: f.env, User: f.user, Workdir: f.workdir}, Schedule: sandbox.Schedule{Lifetime: max(time.Nanosecond, time.Until(s.Created.Add(buildTimeout+endTimeout)))},
		Secure: true, AllowInternet: true, OnTimeout: sandbox.OnTimeoutKill,
	}
	if from.snap.ID != "" {
		req = snapshots.From(&from.snap, req)
	}
	if s.Request.CPUMilli > 0 {
		req.CPUMilli = s.Request.CPUMilli
	}
	if s.Request.MemoryMiB > 0 {
		req.MemoryMiB = s.Request.MemoryMiB
	}
	return req
}

// destroy ends a sandbox that is no longer needed, to free its capacity for the next. If the
// build stops, the sandbox is left to the successor.
func (ls *layers) destroy(ctx context.Context, id sandbox.ID) {
	if ctx.Err() != nil {
		return
	}
	if err := ls.sandboxes.DestroySandbox(ctx, ls.principal, id); err != nil && !kind.Is(err, kind.NotFound) {
		ls.log.Warn("end sandbox of build failed", "sandbox", id, "err", err) // its deadline ends it
	}
}
