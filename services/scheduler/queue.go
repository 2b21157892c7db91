package scheduler

import (
	"slices"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// placementOrder sorts requests into the order in which they are placed. The requests of a
// tenant are placed oldest first. Between tenants, the one with fewer sandboxes goes first,
// and each older request of a tenant counts as one of its sandboxes. The older request breaks
// ties. all is sorted newest first.
func placementOrder(all []sandbox.State, running map[string]int) []*sandbox.State {
	type entry struct {
		st    *sandbox.State
		share int
	}
	entries := make([]entry, 0, len(all))
	ahead := make(map[string]int)
	for i := len(all) - 1; i >= 0; i-- {
		st := &all[i]
		entries = append(entries, entry{st, running[st.Tenant] + ahead[st.Tenant]})
		ahead[st.Tenant]++
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.share - b.share })
	out := make([]*sandbox.State, len(entries))
	for i, e := range entries {
		out[i] = e.st
	}
	return out
}

// waits reports whether a sandbox that cannot be placed now may still be placed later.
func (v *verdict) waits(st *sandbox.State, now time.Time) bool {
	return v.temporary() && now.Before(st.Request.PlaceBy)
}

// body returns the event that the verdict adds to the sandbox's record; nil: none yet.
func (v *verdict) body(st *sandbox.State, now time.Time) sandbox.Body {
	switch {
	case v.Host != nil:
		return sandbox.Placed{Host: v.Host.Host, Epoch: v.Host.Epoch, Driver: v.Driver}
	case v.Refused == nil:
		return nil
	case !v.waits(st, now):
		return *v.Refused
	case st.Phase == sandbox.PhaseQueued:
		return nil
	}
	return sandbox.Queued{Reason: v.Refused.Reason}
}
