package procs

import (
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
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

func (ps *Procs) trackStart(p pending) {
	ps.mu.Lock()
	ps.unclaimed = append(ps.unclaimed, p)
	ps.mu.Unlock()
}

// Run ends the records of starts that no host claimed, so that no reader waits for ever
// for a host that died with the command unread: it claims the record on the host's behalf
// and ends it as not started, and a host that comes back is rejected. It returns when ctx
// ends.
func (ps *Procs) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for _, p := range ps.takeDue(now) {
				if err := ps.endUnclaimed(ctx, p); err != nil {
					ps.core.Slog.Warn("end unclaimed start failed", "process", p.id, "err", err)
					p.due = now.Add(ps.core.StartTimeout)
					ps.trackStart(p)
				}
			}
		}
	}
}

// takeDue removes and returns the starts whose time to be claimed is over.
func (ps *Procs) takeDue(now time.Time) []pending {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := 0
	for n < len(ps.unclaimed) && ps.unclaimed[n].due.Before(now) {
		n++
	}
	out := append([]pending(nil), ps.unclaimed[:n]...)
	ps.unclaimed = append(ps.unclaimed[:0], ps.unclaimed[n:]...)
	return out
}

// endUnclaimed ends the record unless a host claimed it. The append expects an empty record,
// so that of two concurrent claims exactly one succeeds.
func (ps *Procs) endUnclaimed(ctx context.Context, p pending) error {
	if _, _, ok := ps.core.View.Process(p.id); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	ref := events.Ref{Host: p.host, ID: p.id}
	if _, err := ps.core.Log.Tail(ctx, ref); !kind.Is(err, kind.NotFound) {
		return err
	}
	now := time.Now()
	err := ps.core.Log.Writer(ref, p.epoch).Append(ctx, []process.Event{
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
	// The next Start with the same key finds the refusal in the catalogue.
	_, err = ps.core.Log.PutSummary(ctx, &process.Summary{
		ID: p.id, Tenant: p.tenant, Host: p.host, Epoch: p.epoch, Spec: p.spec, Ended: now, Exit: &process.Exit{Cause: process.CauseNotStarted},
	}, 0)
	if kind.Is(err, kind.Conflict) {
		return nil // the host has stored it
	}
	return err
}
