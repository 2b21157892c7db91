package procs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// claimGrace is how long after its command's deadline a start may stay unclaimed: a
// host that read the command in time may still be appending.
const claimGrace = 2 * time.Second

// pending is a start that was sent but that no host has claimed yet.
type pending struct {
	id      process.ID
	command string // the command's id
	host    string
	epoch   uint64
	tenant  string
	spec    process.Spec // without Env
	hash    []byte       // of the spec with Env
	due     time.Time
}

// unclaimed are the starts that this gateway sent and that no host may have claimed yet.
type unclaimed struct {
	core *core.Core

	mu     sync.Mutex
	starts []pending // oldest first: all have the same timeout
}

// track adds a start that was sent.
func (u *unclaimed) track(p pending) {
	u.mu.Lock()
	u.starts = append(u.starts, p)
	u.mu.Unlock()
}

// has reports whether a host may still claim the start of a process.
func (u *unclaimed) has(id process.ID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.starts, func(p pending) bool { return p.id == id })
}

// run ends the records of starts that no host claimed, so that no reader waits for ever
// for a host that died with the command unread: it claims the record on the host's behalf
// and ends it as not started, and a host that comes back is rejected. It returns when ctx
// ends.
func (u *unclaimed) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for _, p := range u.takeDue(now) {
				if err := u.end(ctx, p); err != nil {
					u.core.Slog.Warn("end unclaimed start failed", "process", p.id, "err", err)
					p.due = now.Add(u.core.StartTimeout)
					u.track(p)
				}
			}
		}
	}
}

// takeDue removes and returns the starts whose time to be claimed is over.
func (u *unclaimed) takeDue(now time.Time) []pending {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.starts) && u.starts[n].due.Before(now) {
		n++
	}
	out := append([]pending(nil), u.starts[:n]...)
	u.starts = append(u.starts[:0], u.starts[n:]...)
	return out
}

// end ends the record unless a host claimed it. The append expects an empty record,
// so that of two concurrent claims exactly one succeeds.
func (u *unclaimed) end(ctx context.Context, p pending) error {
	if _, _, ok := u.core.View.Process(p.id); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.core.CallTimeout)
	defer cancel()
	ref := record.Ref{Host: p.host, ID: p.id}
	if _, err := u.core.Log.Tail(ctx, ref); !kind.Is(err, kind.NotFound) {
		return err
	}
	now := time.Now()
	err := u.core.Log.Writer(ref, p.epoch).Append(ctx, []process.Event{
		{Seq: 1, Time: now, Body: process.Accepted{Spec: p.spec, Command: p.command, SpecHash: p.hash, Tenant: p.tenant}},
		{Seq: 2, Time: now, Body: process.Failed{Kind: uint32(kind.Unavailable), Message: "the sandbox's host did not take the command"}},
		{Seq: 3, Time: now, Body: process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}}},
	})
	if kind.Is(err, kind.Conflict) || kind.Is(err, kind.Fenced) {
		return nil // claimed after all
	}
	if err != nil {
		return err
	}
	// The next Start with the same key finds the refusal in the catalog.
	_, err = u.core.Log.PutSummary(ctx, &process.Summary{
		ID: p.id, Tenant: p.tenant, Host: p.host, Epoch: p.epoch, Spec: p.spec, Ended: now, Exit: &process.Exit{Cause: process.CauseNotStarted},
	}, 0)
	if kind.Is(err, kind.Conflict) {
		return nil // the host has stored it
	}
	return err
}
