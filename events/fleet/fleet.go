// Package fleet is the vocabulary of hosts and their leases. It does no I/O.
package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// DefaultTTL is how long a host counts as alive after its last lease.
const DefaultTTL = 10 * time.Second

// Lease is a host's claim to be alive. Its time to live starts when a reader receives it,
// so that clocks that jump or differ do no harm.
type Lease struct {
	Host       string
	Epoch      uint64 // increases with every run of hostd, and fences the older one
	TTL        time.Duration
	Drivers    []string // the first is the default
	Isolations []string // of the drivers, in their order: sandbox.Isolation
	Templates  []string // ready templates, and copies of other hosts' files; a host that supports this lists none it lacks
	Fits       []string // of the drivers, in their order: on which hosts their snapshots are usable; empty: on no other
	FileFits   []string // the same for snapshots without memory, if it differs
	System     string   // identifies the host's own files, from which the host template is made
	CPU        string   // CPU features: memory can be resumed only on an equal CPU
	// VolumeDrivers are the drivers that support volumes.
	VolumeDrivers []string
	Enforced      []string // of the drivers, in their order: the limits each enforces, separated by spaces
	Capacity      uint32   // maximum number of sandboxes
	Sandboxes     uint32
	Processes     uint32
	Draining      bool   // accepts no new sandbox
	Starting      bool   // draining, but only until this run has dealt with what the previous one left
	Gone          bool   // set by the host when it leaves, or by the reaper
	Instance      string // random, per run of hostd: distinguishes two hosts with one name
	Version       string
	Checkpoint    Checkpoint // up to which the log has the ends of the host's processes; zero: unknown
	Machine
}

// Machine describes the machine of a host and its load.
type Machine struct {
	CPUs        uint32
	Load1       float64
	MemoryTotal uint64 // bytes
	MemoryFree  uint64
	DiskTotal   uint64 // bytes of the file system for sandboxes' files; 0: unknown
}

// Checkpoint is a message in the stream with a host's records. When it was the last one, the stream had the
// ends of the host's processes that had ended up to a message of the catalog. As long as the stream has that
// message, and lacks no other one, it has those ends.
type Checkpoint struct {
	Seq     uint64    // stream sequence of the message
	Stored  time.Time // time at which the message was stored, which distinguishes it from one that replaced it
	At      time.Time // time at which it was the last message, by the host's clock
	Missing uint64    // number of messages that the stream lacked between its first and its last one
	Rev     uint64    // stream sequence of the last entry in the catalog whose end was compared
}

// JustBefore is more than a host leaves between its two writes of the end of a process, in the record and in the catalog.
const JustBefore = 5 * time.Minute

// Needs lists what a snapshot requires of another host, besides the driver.
type Needs struct {
	System bool // its sandbox is based on the host's own files
	CPU    bool // it includes the memory
}

// Fit returns what a host must report of a driver to use a snapshot that was made on this
// host with it; "" if no other host can.
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

// On precedes the system in the result of Fit.
const On = " on "

// Fit is Lease.Fit for given values of driver, system and CPU.
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

// Host is a lease as received by a reader.
type Host struct {
	Lease
	Rev      uint64    // stream sequence of the lease, which a writer must expect
	Received time.Time // by the reader's monotonic clock
}

// Alive reports whether the host's lease is valid at now.
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
