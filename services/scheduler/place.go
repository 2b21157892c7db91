package scheduler

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// room is one host as placement sees it.
type room struct {
	Host     string
	Epoch    uint64
	Drivers  []string
	Capacity int
	Used     int  // sandboxes placed there that are not over
	Draining bool // takes nothing new
	Doubtful bool // its lease ran out while nobody could have heard it
}

// verdict is what place says of a sandbox: a host, a refusal, or (when both are
// empty) to ask again later.
type verdict struct {
	Host    *room
	Refused *sandbox.Refused
}

// place picks the least loaded host that may take the sandbox. Load is the part
// of the capacity that is used; the name decides between equals. A host in doubt
// is never picked, but nothing is refused for want of a host while there is one.
func place(req *sandbox.Requested, rooms []room) verdict {
	var best *room
	alive, offers, doubt := 0, 0, false
	for i := range rooms {
		r := &rooms[i]
		switch {
		case r.Draining:
			continue
		case r.Doubtful:
			doubt = true
			continue
		}
		alive++
		if req.Driver != "" && !slices.Contains(r.Drivers, req.Driver) {
			continue
		}
		offers++
		if r.Used < r.Capacity && (best == nil || less(r, best)) {
			best = r
		}
	}
	switch {
	case best != nil:
		return verdict{Host: best}
	case doubt:
		return verdict{}
	case alive == 0:
		return refuse(kind.Unavailable, "no host is alive")
	case offers == 0:
		return refuse(kind.Unavailable, "no host offers driver "+req.Driver)
	}
	return refuse(kind.Exhausted, "no host has room for another sandbox")
}

func less(a, b *room) bool {
	// a.Used/a.Capacity < b.Used/b.Capacity without a division; both capacities are > 0 here.
	if l, r := a.Used*b.Capacity, b.Used*a.Capacity; l != r {
		return l < r
	}
	return strings.Compare(a.Host, b.Host) < 0
}

func refuse(k kind.Kind, reason string) verdict {
	return verdict{Refused: &sandbox.Refused{Kind: uint32(k), Reason: reason}}
}
