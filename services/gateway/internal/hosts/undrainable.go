package hosts

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Undrainable is something that exists on one host only: it is lost with the host.
type Undrainable struct {
	Kind   string `json:"kind"` // sandbox, snapshot, template (a built one, identified by its snapshot) or volume
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Tenant string `json:"tenant"`
	State  string `json:"state"`  // a sandbox's phase; copying: it will be in the store; stays: it will not
	Reason string `json:"reason"` // what can be done about it

	host string
}

const (
	stateCopying = "copying"
	stateStays   = "stays"
)

// Undrainable lists what would be lost if a host were switched off now. While the host accepts
// sandboxes the list is a momentary state; while it drains the list only gets shorter,
// except for new snapshots of its sandboxes. It returns NotFound for an unknown host.
func (hs *Hosts) Undrainable(ctx context.Context, host string) (fleet.Host, []Undrainable, error) {
	h, err := hs.host(ctx, host)
	if err != nil {
		return h, nil, err
	}
	return h, hs.undrainable(map[string]bool{host: true}), nil
}

// undrainable is Undrainable for several hosts, as of the view.
func (hs *Hosts) undrainable(hosts map[string]bool) []Undrainable {
	out := []Undrainable{}
	all := hs.core.View.Hosts()
	for _, s := range hs.core.View.Sandboxes(func(s *sandbox.State) bool { return hosts[s.Host] && !s.Over() }) {
		out = append(out, Undrainable{Kind: "sandbox", ID: string(s.ID), Tenant: s.Tenant, State: string(s.Phase), Reason: hs.sandboxAdvice(&s, all), host: s.Host})
	}
	for _, s := range hs.uncopiedSnapshots(hosts) {
		item := Undrainable{Kind: "snapshot", ID: string(s.ID), Name: s.Name, Tenant: s.Tenant, host: s.Host}
		if s.Internal {
			item.Kind = "template"
		}
		item.State, item.Reason = hs.copyAdvice(&s, all)
		out = append(out, item)
	}
	for _, v := range hs.core.View.Volumes(func(v *sandbox.Volume) bool { return hosts[v.Host] && v.Made && !v.Deleted }) {
		why := "a volume is never copied; read its files, then delete it"
		out = append(out, Undrainable{Kind: "volume", ID: string(v.ID), Name: v.Name, Tenant: v.Tenant, State: stateStays, Reason: why, host: v.Host})
	}
	return out
}

// sandboxAdvice describes what can be done about a sandbox, which ends with its host.
func (hs *Hosts) sandboxAdvice(s *sandbox.State, all []fleet.Host) string {
	why := "it ends with its host; wait for its end"
	h, _ := hs.core.View.Host(s.Host)
	n := fleet.Needs{System: template.IsHost(s.Request.Template), CPU: s.Can.Memory}
	switch fits := h.Fit(s.Driver, n); {
	case !hs.core.HostAlive(s.Host) || !s.Can.Files && !s.Can.Memory:
		return why
	case fits == "":
		return why + ": a snapshot of it is usable on its host only"
	case !usableElsewhere(s.Host, fits, n, all):
		return why + ": no other host could use a snapshot of it now"
	}
	return why + ", or create another from a snapshot of it"
}

// copyAdvice returns the state of a snapshot's copy to the store, and what can be done about it.
func (hs *Hosts) copyAdvice(s *sandbox.Snapshot, all []fleet.Host) (state, reason string) {
	h, _ := hs.core.View.Host(s.Host)
	switch {
	case s.Fits == "":
		reason = "what driver " + s.Driver + " keeps is usable on its host only; delete it"
		if s.Internal {
			reason += ", or build it again, on another host"
		}
		return stateStays, reason
	case !hs.core.Reachable(s):
		return stateStays, "it is not in the store and cannot be copied until its host is back"
	case s.Copy.Wanted:
		state, reason = stateCopying, "it is being copied to the store"
	case s.Copy.Reason != "":
		state, reason = stateStays, s.Copy.Reason+"; drain again to try again"
	case h.Draining && !h.Starting:
		state, reason = stateStays, "it was made after its host began to drain; drain again to have it copied"
	default:
		state, reason = stateStays, "it has not been copied to the store yet; drain to have it copied"
	}
	if !usableElsewhere(s.Host, s.Fits, fleet.Needs{System: template.IsHost(s.Template), CPU: s.Memory}, all) {
		reason += ", though no other host could use it now"
	}
	return state, reason
}

// usableElsewhere reports whether another host accepts sandboxes and can use snapshots of kind
// fits. A starting host counts, since its abilities are not known yet.
func usableElsewhere(host, fits string, n fleet.Needs, all []fleet.Host) bool {
	return slices.ContainsFunc(all, func(h fleet.Host) bool {
		if h.Host == host || !h.Alive(time.Now()) || h.Draining && !h.Starting {
			return false
		}
		return h.Starting && len(h.Drivers) == 0 || slices.ContainsFunc(h.Drivers, func(d string) bool { return h.Fit(d, n) == fits })
	})
}

// uncopiedSnapshots returns the snapshots that are on the hosts and not in the store, newest first:
// those visible to clients, and those that templates use.
func (hs *Hosts) uncopiedSnapshots(hosts map[string]bool) []sandbox.Snapshot {
	out := hs.core.View.Snapshots(func(s *sandbox.Snapshot) bool {
		return hosts[s.Host] && !s.Deleted && (s.Copy.Manifest == "" || s.Copy.Wanted)
	})
	stands := hs.core.TemplateSnapshots()
	return slices.DeleteFunc(out, func(s sandbox.Snapshot) bool { return s.Internal && !stands[s.ID] })
}

// requestCopies requests copies to the store of the snapshots that only this host has and that
// others can use, however large, including those whose copy failed before.
func (hs *Hosts) requestCopies(ctx context.Context, host string) error {
	for _, s := range hs.uncopiedSnapshots(map[string]bool{host: true}) {
		_, err := hs.core.View.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
			if now.Fits == "" || now.Copy.Wanted || now.Copy.Manifest != "" {
				return false
			}
			now.Copy = sandbox.Copy{Wanted: true}
			return true
		})
		if err != nil {
			return core.LogError("copy snapshot", string(s.ID), err)
		}
	}
	return nil
}

// CountUndrainable counts, by host, what exists only on each draining host.
func (hs *Hosts) CountUndrainable() map[string]int {
	drain := map[string]bool{}
	for _, h := range hs.core.View.Hosts() {
		if h.Draining && !(h.Starting && h.Alive(time.Now())) {
			drain[h.Host] = true
		}
	}
	n := map[string]int{}
	if len(drain) > 0 {
		for _, x := range hs.undrainable(drain) {
			n[x.host]++
		}
	}
	return n
}
