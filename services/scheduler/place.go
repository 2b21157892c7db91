package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// hostCapacity is a host with its remaining capacity.
type hostCapacity struct {
	Host       string
	Epoch      uint64
	Drivers    []string
	Isolations []string                                  // of the drivers, in their order
	Templates  []string                                  // available on the host
	Volumes    []string                                  // drivers that can mount volumes
	Enforced   []string                                  // limits that each driver enforces, in the order of the drivers
	Fits       func(driver string, n fleet.Needs) string // fleet.Lease.Fit
	Capacity   int
	Used       int   // placed sandboxes that have not ended
	CPU        quota // in thousandths of a CPU
	Memory     quota // in MiB
	Draining   bool  // accepts no new sandboxes
	Starting   bool  // accepts no sandboxes yet; without Drivers they are unknown
	Uncertain  bool  // its lease expired while renewals could not be observed
	Reserved   bool  // an older request waits for it, so younger ones must wait, too
}

// quota is what the limits of a host's sandboxes may add up to. A Total of 0 is unknown and
// not enforced.
type quota struct{ Total, Used uint64 }

func (p quota) fits(n uint32) bool { return p.Total == 0 || n == 0 || p.Used+uint64(n) <= p.Total }

// holds reports whether n would fit if nothing were used.
func (p quota) holds(n uint32) bool { return quota{Total: p.Total}.fits(n) }

// hasCapacity reports whether the host has capacity for a sandbox.
func (r *hostCapacity) hasCapacity(req *sandbox.Requested) bool {
	return !r.Reserved && r.Used < r.Capacity && r.CPU.fits(req.CPUMilli) && r.Memory.fits(req.MemoryMiB)
}

// holds reports whether the host would have capacity for a sandbox if it had no other.
func (r *hostCapacity) holds(req *sandbox.Requested) bool {
	return r.Capacity > 0 && r.CPU.holds(req.CPUMilli) && r.Memory.holds(req.MemoryMiB)
}

// take counts a sandbox. A paused one uses no CPU.
func (r *hostCapacity) take(req *sandbox.Requested, paused bool) {
	r.Used++
	r.Memory.Used += uint64(req.MemoryMiB)
	if !paused {
		r.CPU.Used += uint64(req.CPUMilli)
	}
}

// driver returns the first driver of the host that meets the request and can use the
// snapshot that the sandbox starts from.
func (r *hostCapacity) driver(req *sandbox.Requested, from *origin) (name string, ok bool) {
	if len(r.Drivers) == 0 { // drivers unknown
		return "", r.Starting || req.Driver == "" && req.Isolation == "" && len(req.Volumes) == 0 && len(req.Demanded) == 0
	}
	for i, d := range r.Drivers {
		var level sandbox.Isolation
		if i < len(r.Isolations) {
			level = sandbox.Isolation(r.Isolations[i])
		}
		shows := len(req.Volumes) == 0 || slices.Contains(r.Volumes, d)
		if (req.Driver == "" || req.Driver == d) && level.AtLeast(req.Isolation) && shows && r.enforces(i, req.Demanded) && from.usable(r, d) {
			return d, true
		}
	}
	return "", false
}

// enforces reports whether driver i of the host enforces these limits.
func (r *hostCapacity) enforces(i int, limits []sandbox.Limit) bool {
	var has []string
	if i < len(r.Enforced) {
		has = strings.Fields(r.Enforced[i])
	}
	return !slices.ContainsFunc(limits, func(l sandbox.Limit) bool { return !slices.Contains(has, string(l)) })
}

// origin is the snapshot that a sandbox starts from.
type origin struct {
	host   string // host that made it; empty: no snapshot
	driver string // driver that made it
	fits   string // Fit that another driver or host must have; empty: no other can use it
	copied bool   // a copy is in the store
	tree   string // name of the copy on hosts that have it
	needs  fleet.Needs
}

// has reports whether a host already has the snapshot.
func (o *origin) has(r *hostCapacity) bool {
	return r.Host == o.host || o.tree != "" && slices.Contains(r.Templates, o.tree)
}

// usable reports whether a driver of a host can use the snapshot.
func (o *origin) usable(r *hostCapacity, driver string) bool {
	return o.host == "" || r.Host == o.host && driver == o.driver && !o.outgrown(r) ||
		o.fits != "" && r.Fits != nil && r.Fits(driver, o.needs) == o.fits
}

// outgrown reports whether the host that made the snapshot now has another build of the
// driver, or another CPU, than the snapshot's memory requires. A change of the host's own
// files does not matter there.
func (o *origin) outgrown(r *hostCapacity) bool {
	if !o.needs.CPU || o.fits == "" || r.Fits == nil {
		return false
	}
	current := r.Fits(o.driver, fleet.Needs{CPU: true})
	return current != "" && o.fits != current && !strings.HasPrefix(o.fits, current+fleet.On)
}

// suits reports whether a host can get the snapshot; alive reports whether the snapshot's own
// host can provide it.
func (o *origin) suits(r *hostCapacity, alive bool) bool {
	if o.host == "" || r.Host == o.host {
		return true
	}
	unknown := r.Starting && len(r.Drivers) == 0
	return (o.copied || alive) && (unknown || slices.ContainsFunc(r.Drivers, func(d string) bool { return o.usable(r, d) }))
}

// verdict is the result of place: a host and its driver, a refusal, or, if all are empty,
// no decision yet.
type verdict struct {
	Host     *hostCapacity
	Driver   string
	Refused  *sandbox.Refused
	Starting bool            // refused because the hosts that qualify are starting
	Full     []*hostCapacity // hosts that qualify and are full
}

// temporary reports whether a refusal is temporary: a host may get capacity, or finish starting.
func (v *verdict) temporary() bool { return v.Refused != nil && (v.Starting || len(v.Full) > 0) }

// reserve keeps younger requests off the hosts that this one waits for.
func (v *verdict) reserve() {
	for _, r := range v.Full {
		r.Reserved = true
	}
}

// place picks the least loaded host that qualifies for the sandbox. It prefers a host with
// the sandbox's snapshot or template. Load is the used part of the capacity; the name breaks
// ties. An uncertain host is never picked, but while there is one, no sandbox is refused for
// lack of a host. A sandbox for which only starting hosts qualify is refused for that reason,
// which is temporary.
func place(req *sandbox.Requested, from origin, hosts []hostCapacity) verdict {
	var best verdict
	var full []*hostCapacity
	var seen census
	alive := slices.ContainsFunc(hosts, func(r hostCapacity) bool { return r.Host == from.host && !r.Uncertain })
	for i := range hosts {
		r := &hosts[i]
		switch {
		case !from.suits(r, alive), req.VolumeHost != "" && req.VolumeHost != r.Host:
			continue
		case r.Draining:
			seen.draining++
			continue
		case r.Uncertain:
			seen.uncertain++
			continue
		}
		seen.alive++
		driver, ok := r.driver(req, &from)
		if !ok {
			seen.lacks(r, req, &from)
			continue
		}
		seen.offers++
		switch {
		case !r.hasCapacity(req):
			if r.holds(req) && !r.Starting {
				full = append(full, r)
			}
		case r.Starting:
			seen.starting++
		case best.Host == nil || less(r, best.Host, req.Template, &from):
			best = verdict{Host: r, Driver: driver}
		}
	}
	switch {
	case best.Host != nil:
		return best
	case seen.uncertain > 0:
		return verdict{}
	case seen.starting > 0:
		v := refuse(kind.Unavailable, "the hosts that qualify for the sandbox are still starting: try again")
		v.Starting, v.Full = true, full
		return v
	case len(full) > 0:
		v := refuse(kind.Exhausted, "no host has capacity for another sandbox")
		v.Full = full
		return v
	}
	return seen.refuse(req, &from)
}

// census counts the hosts that were considered.
type census struct {
	alive, offers, starting, draining, uncertain int
	lax                                          int // offer a driver that does not enforce a required limit
}

// lacks counts a host without a suitable driver.
func (n *census) lacks(r *hostCapacity, req *sandbox.Requested, from *origin) {
	without := *req
	without.Demanded = nil
	if _, ok := r.driver(&without, from); ok {
		n.lax++
	}
}

// refuse returns the reason why no host qualifies.
func (n *census) refuse(req *sandbox.Requested, from *origin) verdict {
	switch {
	case n.alive == 0 && from.host != "" && !from.copied:
		return refuse(kind.Unavailable, "the host of the snapshot accepts no sandboxes, and no other host can get the snapshot")
	case n.alive == 0 && from.host != "":
		return refuse(kind.Unavailable, "no host that can use the snapshot accepts sandboxes: it requires "+cmp.Or(from.fits, "host "+from.host))
	case n.alive == 0 && req.VolumeHost != "":
		return refuse(kind.Unavailable, "the host of the volumes accepts no sandboxes")
	case n.alive == 0 && n.draining > 0:
		return refuse(kind.Unavailable, "no host accepts new sandboxes: all hosts are draining")
	case n.alive == 0:
		return refuse(kind.Unavailable, "no host is alive")
	case n.offers == 0 && n.lax > 0:
		return refuse(kind.Unimplemented, unenforced(req))
	case n.offers == 0:
		return refuse(kind.Unavailable, lacking(req, from))
	}
	return refuse(kind.Exhausted, "no host has capacity for another sandbox: the sandbox exceeds the capacity of every host")
}

// unenforced returns the message about limits that no host enforces.
func unenforced(req *sandbox.Requested) string {
	var names []string
	for _, l := range req.Demanded {
		names = append(names, string(l))
	}
	return "no host enforces all of these limits: " + strings.Join(names, ", ") + "; omit limits that a host cannot enforce (millrace doctor shows why)"
}

// lacking returns the message about a driver that no available host has.
func lacking(req *sandbox.Requested, from *origin) string {
	switch {
	case len(req.Volumes) > 0:
		return "no host offers a matching driver that can mount volumes"
	case req.Isolation != "" && from.driver != "":
		return "no host that can use the snapshot, made with driver " + from.driver + ", offers isolation " + string(req.Isolation)
	case req.Isolation != "":
		return "no host offers isolation " + string(req.Isolation)
	case from.fits != "":
		return "no host that accepts sandboxes can use the snapshot: it requires " + from.fits
	}
	if d := cmp.Or(req.Driver, from.driver); d != "" {
		return "no host offers driver " + d
	}
	return "no host offers a driver"
}

func less(a, b *hostCapacity, template string, from *origin) bool {
	if l, r := from.has(a), from.has(b); l != r {
		return l
	}
	if l, r := slices.Contains(a.Templates, template), slices.Contains(b.Templates, template); l != r {
		return l
	}
	// a.Used/a.Capacity < b.Used/b.Capacity without a division; both capacities are > 0.
	if l, r := a.Used*b.Capacity, b.Used*a.Capacity; l != r {
		return l < r
	}
	return strings.Compare(a.Host, b.Host) < 0
}

func refuse(k kind.Kind, reason string) verdict {
	return verdict{Refused: &sandbox.Refused{Kind: uint32(k), Reason: reason}}
}
