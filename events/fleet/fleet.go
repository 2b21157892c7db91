// Package fleet is the vocabulary of hosts: leases and what they say. It does
// no I/O.
package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// DefaultTTL is how long a host counts as alive after its last lease.
const DefaultTTL = 10 * time.Second

// Lease is a host's claim to be alive. Its time to live counts from the moment
// a reader received it, so that clocks that jump or differ do no harm.
type Lease struct {
	Host       string
	Epoch      uint64 // grows with every life of the host's daemon, and fences the older one
	TTL        time.Duration
	Drivers    []string // the first is the default
	Isolations []string // of the drivers, in their order: sandbox.Isolation
	Templates  []string // that are ready there, and copies of others' files; a host that knows names none
	Fits       []string // of the drivers, in their order: what makes their snapshots usable elsewhere; empty: nothing does
	FileFits   []string // the same of snapshots without memory, where that differs: any driver that says so can use them
	System     string   // what the host's own files are, which the host template is made of
	CPU        string   // what its CPU can: memory goes on where it can the same
	// VolumeDrivers are those of the drivers that show volumes to sandboxes.
	VolumeDrivers []string
	Enforced      []string // of the drivers, in their order: the limits that each enforces, separated by spaces
	Capacity      uint32   // sandboxes
	Sandboxes     uint32
	Processes     uint32
	Load1         float64
	MemoryTotal   uint64 // bytes
	MemoryFree    uint64
	DiskTotal     uint64 // bytes of the file system that sandboxes' files are on; 0: not known
	CPUs          uint32
	Draining      bool   // it takes no new sandbox
	Starting      bool   // it is draining, but only until a life of it has seen to what the one before left
	Gone          bool   // written by the host as it leaves, or by the reaper
	Instance      string // random, of this life of the daemon: tells two of one name apart
	Version       string
}

// Needs is what a snapshot needs alike on another host, besides the driver.
type Needs struct {
	System bool // its sandbox stood on the host's own files
	CPU    bool // it has the memory
}

// Fit is what a host must say of one of its drivers to use a snapshot that was made
// here with the driver. Empty if no other host can.
func (l *Lease) Fit(driver string, n Needs) string {
	i := slices.Index(l.Drivers, driver)
	if i < 0 || i >= len(l.Fits) {
		return ""
	}
	says := l.Fits[i]
	if !n.CPU && i < len(l.FileFits) {
		says = cmp.Or(l.FileFits[i], says)
	}
	return Fit(says, l.System, l.CPU, n)
}

// On comes before the system in what Fit says.
const On = " on "

// Fit is Lease.Fit for who has what the driver says, and what the host does.
func Fit(driver, system, cpu string, n Needs) string {
	if driver == "" || n.CPU && cpu == "" {
		return ""
	}
	if n.CPU {
		driver += ", CPU " + cpu
	}
	if n.System {
		driver += On + system
	}
	return driver
}

// Host is a lease as a reader sees it.
type Host struct {
	Lease
	Rev      uint64    // stream sequence of the lease: what a writer must expect
	Received time.Time // by the reader's monotonic clock
}

// Alive reports whether the host's lease holds at now.
func (h *Host) Alive(now time.Time) bool { return !h.Gone && now.Sub(h.Received) < h.TTL }

// ParseName checks a host's name: 1 to 63 of [a-z0-9_-].
func ParseName(s string) (string, error) {
	ok := len(s) > 0 && len(s) <= 63
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	if !ok {
		return "", kind.Newf(kind.Invalid, "parse host name", "", "host name %q: 1 to 63 of a-z 0-9 - _", s)
	}
	return s, nil
}
