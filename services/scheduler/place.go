package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// room is one host as placement sees it.
type room struct {
	Host       string
	Epoch      uint64
	Drivers    []string
	Isolations []string                                  // of the drivers, in their order
	Templates  []string                                  // that are ready there
	Volumes    []string                                  // the drivers that show volumes
	Enforced   []string                                  // of the drivers, in their order: the limits that each enforces
	Fits       func(driver string, n fleet.Needs) string // fleet.Lease.Fit
	Capacity   int
	Used       int  // sandboxes placed there that are not over
	CPU        part // thousandths of a CPU
	Memory     part // MiB
	Draining   bool // takes nothing new
	Starting   bool // takes nothing yet; without Drivers it does not know them
	Doubtful   bool // its lease ran out while nobody could have heard it
	Reserved   bool // an older request waits for it, so that younger ones must wait, too
}

// part is what sandboxes with a limit may take of a host together. A Total of 0
// is not known, and not counted.
type part struct{ Total, Used uint64 }

func (p part) fits(n uint32) bool { return p.Total == 0 || n == 0 || p.Used+uint64(n) <= p.Total }

// holds reports whether n fits while nothing is used.
func (p part) holds(n uint32) bool { return part{Total: p.Total}.fits(n) }

// roomFor reports whether the host has room for a sandbox.
func (r *room) roomFor(req *sandbox.Requested) bool {
	return !r.Reserved && r.Used < r.Capacity && r.CPU.fits(req.CPUMilli) && r.Memory.fits(req.MemoryMiB)
}

// holds reports whether the host has room for a sandbox while it has no other.
func (r *room) holds(req *sandbox.Requested) bool {
	return r.Capacity > 0 && r.CPU.holds(req.CPUMilli) && r.Memory.holds(req.MemoryMiB)
}

// take counts a sandbox. One that stands still takes no CPU.
func (r *room) take(req *sandbox.Requested, standing bool) {
	r.Used++
	r.Memory.Used += uint64(req.MemoryMiB)
	if !standing {
		r.CPU.Used += uint64(req.CPUMilli)
	}
}

// driver finds the first driver of the host that gives what is demanded and can use
// what the sandbox begins from.
func (r *room) driver(req *sandbox.Requested, from *origin) (name string, ok bool) {
	if len(r.Drivers) == 0 { // it does not say
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
func (r *room) enforces(i int, limits []sandbox.Limit) bool {
	var has []string
	if i < len(r.Enforced) {
		has = strings.Fields(r.Enforced[i])
	}
	return !slices.ContainsFunc(limits, func(l sandbox.Limit) bool { return !slices.Contains(has, string(l)) })
}

// origin is the snapshot that a sandbox begins from, as placement sees it.
type origin struct {
	host   string // that made it; empty: there is none
	driver string // that made it
	fits   string // what a host must say of another driver, or another host of any; empty: it will not do
	copied bool   // it can be had of the store, whatever became of its host
	tree   string // what hosts call the copy that they have
	needs  fleet.Needs
}

// has reports whether a host has the snapshot already.
func (o *origin) has(r *room) bool {
	return r.Host == o.host || o.tree != "" && slices.Contains(r.Templates, o.tree)
}

// usable reports whether a driver of a host can use the snapshot.
func (o *origin) usable(r *room, driver string) bool {
	return o.host == "" || r.Host == o.host && driver == o.driver && !o.outgrown(r) ||
		o.fits != "" && r.Fits != nil && r.Fits(driver, o.needs) == o.fits
}

// outgrown reports whether the host that made the snapshot has another build of the
// driver, or another CPU, than its memory needs. That the host's own files have changed
// since does not matter there.
func (o *origin) outgrown(r *room) bool {
	if !o.needs.CPU || o.fits == "" || r.Fits == nil {
		return false
	}
	says := r.Fits(o.driver, fleet.Needs{CPU: true})
	return says != "" && o.fits != says && !strings.HasPrefix(o.fits, says+fleet.On)
}

// suits reports whether a host can have the snapshot; alive says whether its own can
// be asked for it.
func (o *origin) suits(r *room, alive bool) bool {
	if o.host == "" || r.Host == o.host {
		return true
	}
	unknown := r.Starting && len(r.Drivers) == 0
	return (o.copied || alive) && (unknown || slices.ContainsFunc(r.Drivers, func(d string) bool { return o.usable(r, d) }))
}

// verdict is what place says of a sandbox: a host and its driver, a refusal, or
// (when all are empty) to ask again later.
type verdict struct {
	Host     *room
	Driver   string
	Refused  *sandbox.Refused
	Starting bool    // it is refused because the hosts that could take it are starting
	Full     []*room // hosts that could take it and are full
}

// later reports whether a refusal is only for now: a host may get room, or end its start.
func (v *verdict) later() bool { return v.Refused != nil && (v.Starting || len(v.Full) > 0) }

// reserve keeps younger requests from the hosts that this one waits for.
func (v *verdict) reserve() {
	for _, r := range v.Full {
		r.Reserved = true
	}
}

// place picks the least loaded host that may take the sandbox, before all others
// one that has its template, or the snapshot that it begins from. Load is the part of the capacity that is used; the
// name decides between equals. A host in doubt is never picked, but nothing is
// refused for want of a host while there is one. One that only starting hosts could
// take is refused for that, which whoever asks may wait for.
func place(req *sandbox.Requested, from origin, rooms []room) verdict {
	var best verdict
	var full []*room
	var seen census
	alive := slices.ContainsFunc(rooms, func(r room) bool { return r.Host == from.host && !r.Doubtful })
	for i := range rooms {
		r := &rooms[i]
		switch {
		case !from.suits(r, alive), req.VolumeHost != "" && req.VolumeHost != r.Host:
			continue
		case r.Draining:
			seen.draining++
			continue
		case r.Doubtful:
			seen.doubtful++
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
		case !r.roomFor(req):
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
	case seen.doubtful > 0:
		return verdict{}
	case seen.starting > 0:
		v := refuse(kind.Unavailable, "the hosts that could take the sandbox are still starting, try again")
		v.Starting, v.Full = true, full
		return v
	case len(full) > 0:
		v := refuse(kind.Exhausted, "no host has room for another sandbox")
		v.Full = full
		return v
	}
	return seen.refuse(req, &from)
}

// census counts the hosts that were looked at.
type census struct {
	alive, offers, starting, draining, doubtful int
	lax                                         int // would offer a driver, but do not enforce a demanded limit
}

// lacks counts a host that offers no driver for the sandbox.
func (n *census) lacks(r *room, req *sandbox.Requested, from *origin) {
	without := *req
	without.Demanded = nil
	if _, ok := r.driver(&without, from); ok {
		n.lax++
	}
}

// refuse says why no host may take the sandbox.
func (n *census) refuse(req *sandbox.Requested, from *origin) verdict {
	switch {
	case n.alive == 0 && from.host != "" && !from.copied:
		return refuse(kind.Unavailable, "the host that has the snapshot takes no sandbox, and no other can have it")
	case n.alive == 0 && from.host != "":
		return refuse(kind.Unavailable, "no host that can use the snapshot takes sandboxes: it fits "+cmp.Or(from.fits, "host "+from.host))
	case n.alive == 0 && req.VolumeHost != "":
		return refuse(kind.Unavailable, "the host that has the volumes takes no sandbox")
	case n.alive == 0 && n.draining > 0:
		return refuse(kind.Unavailable, "no host takes new sandboxes: those that live are draining")
	case n.alive == 0:
		return refuse(kind.Unavailable, "no host is alive")
	case n.offers == 0 && n.lax > 0:
		return refuse(kind.Unimplemented, unenforced(req))
	case n.offers == 0:
		return refuse(kind.Unavailable, lacking(req, from))
	}
	return refuse(kind.Exhausted, "no host has room for another sandbox: the sandbox needs more than any of them has")
}

// unenforced returns the sentence about limits that no host enforces.
func unenforced(req *sandbox.Requested) string {
	var names []string
	for _, l := range req.Demanded {
		names = append(names, string(l))
	}
	return "no host enforces these limits of the sandbox together: " + strings.Join(names, ", ") + "; leave out those that a host cannot enforce (millrace doctor says why)"
}

// lacking says what no driver of those hosts is that take sandboxes.
func lacking(req *sandbox.Requested, from *origin) string {
	switch {
	case len(req.Volumes) > 0:
		return "no host offers a driver that shows volumes and is what was asked for"
	case req.Isolation != "" && from.driver != "":
		return "no host that can use what it begins from, made with driver " + from.driver + ", offers isolation " + string(req.Isolation)
	case req.Isolation != "":
		return "no host offers isolation " + string(req.Isolation)
	case from.fits != "":
		return "no host that takes sandboxes can use the snapshot: it fits " + from.fits
	}
	if d := cmp.Or(req.Driver, from.driver); d != "" {
		return "no host offers driver " + d
	}
	return "no host offers a driver"
}

func less(a, b *room, template string, from *origin) bool {
	if l, r := from.has(a), from.has(b); l != r {
		return l
	}
	if l, r := slices.Contains(a.Templates, template), slices.Contains(b.Templates, template); l != r {
		return l
	}
	// a.Used/a.Capacity < b.Used/b.Capacity without a division; both capacities are > 0 here.
	if l, r := a.Used*b.Capacity, b.Used*a.Capacity; l != r {
		return l < r
	}
	return strings.Compare(a.Host, b.Host) < 0
}

func refuse(k kind.Kind, reason string) verdict {
	return verdict{Refused: &sandbox.Refused{Kind: uint32(k), Reason: reason}}
}
