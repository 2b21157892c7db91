package hostd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
)

// sandboxSet has the open sandboxes, and the commands for those that are not adopted yet.
type sandboxSet struct {
	h *host

	snapshotUnused atomic.Bool // a sandbox based on a snapshot has ended
	mu             sync.Mutex
	byID           map[sandbox.ID]*hostSandbox
	parked         map[sandbox.ID][]events.Command // for sandboxes that are not adopted yet; nil: all are
	parkedBytes    int                             // bytes of input in parked
}

// run opens every sandbox that is placed here, and passes updates of their records to the open
// sandboxes.
func (set *sandboxSet) run(ctx context.Context) error {
	changed, stop := set.h.view.Changes()
	defer stop()
	var swept uint64
	var begun time.Time
	var owed time.Duration // rest owed for checks
	for {
		owed = max(0, owed-time.Since(begun))
		begun = time.Now()
		for _, s := range set.h.view.Sandboxes(set.unopened) {
			set.open(newSandbox(set.h, &s))
		}
		set.unparkAll()
		set.updateAll()
		if n := set.h.view.Deletions(); n != swept || set.snapshotUnused.Swap(false) {
			swept = n
			set.h.snapshots.Sweep(true)
		}
		// Every sandbox of the fleet changes the view. However busy the fleet is, watch takes a
		// small part of the time. An occasional check is free: the second one mostly finds the
		// sandbox that the first saw before it was placed.
		owed += watchShare * time.Since(begun)
		if owed > watchCredit && !waiting.Sleep(ctx, owed-watchCredit) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

const (
	watchShare  = 20                    // rest after a check, as a multiple of its duration
	watchCredit = 20 * time.Millisecond // rest that may be owed
)

// mine reports whether a sandbox is this host's and has not ended.
func (set *sandboxSet) mine(s *sandbox.State) bool { return s.Host == set.h.cfg.Name && !s.Over() }

// unopened reports whether a sandbox is this host's and not open yet.
func (set *sandboxSet) unopened(s *sandbox.State) bool { return set.mine(s) && set.get(s.ID) == nil }

// updateAll passes the newest states to the open sandboxes, including those that other services
// have ended.
func (set *sandboxSet) updateAll() {
	for _, sb := range set.all() {
		if s, ok := set.h.view.Sandbox(sb.id); ok {
			sb.setDesired(&s)
		}
	}
}

// open starts a sandbox, unless it is open, and delivers the commands that are parked for it.
func (set *sandboxSet) open(sb *hostSandbox) {
	set.add(sb)
	set.unpark(sb.id)
}

func (set *sandboxSet) add(sb *hostSandbox) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.byID[sb.id] != nil {
		return
	}
	set.byID[sb.id] = sb
	set.h.spawn("sandbox "+string(sb.id), func(ctx context.Context) error {
		defer set.close(sb)
		return sb.run(ctx)
	})
}

// close removes a sandbox that has ended, and then closes gone.
func (set *sandboxSet) close(sb *hostSandbox) {
	defer close(sb.gone)
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.byID, sb.id)
	if sb.req.From != "" {
		set.snapshotUnused.Store(true)
	}
}

// destroyAll ends every sandbox, for a clean exit.
func (set *sandboxSet) destroyAll(ctx context.Context) error {
	sandboxes := set.all()
	for _, sb := range sandboxes {
		_, err := set.h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
			if s.Over() || s.Phase == sandbox.PhaseStopping {
				return nil, nil
			}
			return []sandbox.Body{sandbox.Stopping{Cause: causeHostStopped}}, nil
		})
		if err != nil {
			return err
		}
		if s, ok := set.h.view.Sandbox(sb.id); ok {
			sb.setDesired(&s)
		}
	}
	for _, sb := range sandboxes {
		select {
		case <-sb.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// causeHostStopped is the cause of sandboxes that end with their host's clean exit.
const causeHostStopped = "host_stopped"
