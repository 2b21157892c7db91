// Package sandbox is the vocabulary of a sandbox's record: its events ([Body]) and their
// meaning for its [State]. It does no I/O.
package sandbox

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// ID identifies a sandbox: 1 to 40 of [a-z0-9]. New ones are "i" and 20 characters, like
// E2B's.
type ID string

const (
	alphabet  = "0123456789abcdefghijklmnopqrstuvwxyz"
	maxIDLen  = 40
	newIDLen  = 21
	newPrefix = 'i'
)

// NewID returns an id of 103 random bits.
func NewID() ID { return ID(newID(newPrefix)) }

// KeyedID returns the id derived from a key, so that an interrupted creation finds its
// sandbox again. The key must be secret.
func KeyedID(key string) ID { return ID(keyedID(newPrefix, key)) }

func newID(prefix byte) string {
	return makeID(prefix, func(raw *[sha256.Size]byte) {
		rand.Read(raw[:])
	})
}

func keyedID(prefix byte, key string) string {
	raw := sha256.Sum256([]byte(key))
	return makeID(prefix, func(next *[sha256.Size]byte) {
		raw = sha256.Sum256(raw[:])
		*next = raw
	})
}

// makeID makes an id from the bytes that fill supplies.
func makeID(prefix byte, fill func(*[sha256.Size]byte)) string {
	b := make([]byte, 0, newIDLen)
	b = append(b, prefix)
	var raw [sha256.Size]byte
	for len(b) < newIDLen {
		fill(&raw)
		for _, r := range raw {
			if int(r) < len(alphabet)*7 && len(b) < newIDLen {
				b = append(b, alphabet[int(r)%len(alphabet)])
			}
		}
	}
	return string(b)
}

// ParseID validates an id from outside. A parsed ID has no wildcards or path separators.
func ParseID(s string) (ID, error) {
	if len(s) == 0 || len(s) > maxIDLen {
		return "", kind.New(kind.NotFound, "parse sandbox id", "", "sandbox not found")
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", kind.New(kind.NotFound, "parse sandbox id", "", "sandbox not found")
		}
	}
	return ID(s), nil
}

// Event is one fact of a sandbox's record. Seq is dense from 1.
type Event struct {
	Seq  uint64
	Time time.Time
	Body Body
}

// Body is one of Requested, Queued, Placed, Refused, Running, DeadlineSet, Pausing,
// Paused, Resuming, Resumed, Snapshotted, NetworkSet, NetworkUsed, Warned, Mounted, Unmounted, Stopping, Destroyed,
// Lost or Failed.
//
//sumtype:decl
type Body interface{ kind() string }

// Requested is the first event: a client requested a sandbox.
type Requested struct {
	Template string
	Driver   string // empty: the host's default
	Metadata map[string]string
	JSON     []string // keys of Metadata whose values are the text of JSON; the others are strings
	Defaults
	Resources
	Schedule
	RequestHash   []byte // hash of a request with an idempotency key; empty: no key
	Secure        bool   // data-plane requests need the sandbox's token
	AllowInternet bool
	OnTimeout     string // OnTimeoutKill, OnTimeoutPause or OnTimeoutPauseFiles
	AutoResume    bool   // a request resumes it while it is paused
	Alias         string
	Isolation     Isolation // minimum isolation; empty: the host's default
	Origin
	Network    Network // its Internet field is AllowInternet
	Volumes    []Mount
	VolumeHost string // the host of all Volumes
	Built      string // public name of the built template; empty: Template
	Build      string // the build that uses the sandbox, which is therefore not listed
	Identity   Identity
	Demanded   []Limit // limits that must be enforced; the others may be defaults
	E2A        E2A
	Recording
}

// Schedule is when a sandbox starts and ends.
type Schedule struct {
	Lifetime time.Duration // starts when the sandbox runs; 0: unlimited
	Idle     time.Duration // it ends when no client has been attached for that long; 0: it does not
	PlaceBy  time.Time     // queue timeout while no host has free capacity; zero: it is not queued
	RunBy    time.Time     // the sandbox ends if it does not run by then; zero: no limit
	HardEnd  time.Time     // the sandbox ends then, in any phase; nothing moves it; zero: none
	Warning  time.Duration // how long before HardEnd it is Warned; 0: it is not
}

// Origin is the snapshot that a sandbox starts from.
type Origin struct {
	From        SnapshotID // empty: from the template alone
	FromSandbox ID         // the sandbox of From; without From see Names
	FromHost    string     // the host of From
}

// Names returns the sandbox to which the record of this one, which never runs, gives the name in its
// metadata; empty: the name is its own.
func (o *Origin) Names() ID {
	if o.From != "" {
		return ""
	}
	return o.FromSandbox
}

// Resources are the limits of a sandbox's resources; 0: the driver's own, or none.
type Resources struct {
	CPUMilli  uint32
	MemoryMiB uint32
	DiskMiB   uint32
	PIDs      uint32
}

// Defaults are the defaults of a sandbox's processes, and what it runs first.
type Defaults struct {
	Env     map[string]string // not stored
	Sealed  seal.Text         // Env in records; see [Defaults.Seal]
	User    string            // empty: the template's
	Workdir string            // empty: the template's
	Start   string            // shell command to run first; empty: none
	Ready   string            // shell command that exits with 0 once Start is ready
}

// EnvPlace returns the place of the sealed environment of a tenant's sandbox or snapshot.
func EnvPlace(tenant, id string) seal.Place {
	return seal.Place{Tenant: tenant, Record: id, Field: "environment"}
}

// Seal returns d for the record of a sandbox or snapshot: only the ring can read its environment.
func (d Defaults) Seal(r *seal.Ring, tenant, id string) (Defaults, error) {
	sealed, err := r.SealMap(EnvPlace(tenant, id), d.Env)
	d.Env, d.Sealed = nil, sealed
	return d, err
}

// OpenEnv returns the environment of defaults that Seal returned. Older ones are not sealed.
func (d *Defaults) OpenEnv(r *seal.Ring, tenant, id string) (map[string]string, error) {
	if d.Sealed == "" {
		return d.Env, nil
	}
	return r.OpenMap(EnvPlace(tenant, id), d.Sealed)
}

// Actions at a sandbox's deadline.
const (
	OnTimeoutKill  = "kill"
	OnTimeoutPause = "pause"
	// OnTimeoutPauseFiles is a pause that keeps only the files.
	OnTimeoutPauseFiles = "pause_files"
)

// Queued reports that the sandbox waits for a host, and why: each suitable host is full or
// still starting.
type Queued struct{ Reason string }

// Placed assigns the sandbox to a host and driver; the first Placed wins.
type Placed struct {
	Host   string
	Epoch  uint64
	Driver string // empty: the host's default
}

// Refused reports that no host can take the sandbox. Kind is a kind.Kind: Exhausted if no
// host has free capacity, Unavailable if there is no host.
type Refused struct {
	Kind   uint32
	Reason string
}

// Running reports that processes can be started in it, and its actual properties.
type Running struct {
	Driver    string
	Isolation Isolation // empty: written before isolation levels existed
	Can       Abilities
	// The driver's own limits if the request has none, like a machine's memory and CPUs; 0:
	// no limit.
	CPUMilli, MemoryMiB uint32
	Unenforced          []Limit // limits of the request that the driver does not enforce
}

// Abilities are the operations that a sandbox supports besides running processes.
type Abilities struct {
	Pause  bool
	Files  bool // snapshots keep its files
	Memory bool // snapshots keep its processes, too
}

// Pausing requests a pause, which its host performs.
type Pausing struct {
	Cause string
	Files bool // keep only the files: its processes end on resume
}

// Paused reports that it is paused: its processes are suspended, none has ended.
type Paused struct{ Message string } // why a requested resume failed

// Resuming requests a resume, which its host performs.
type Resuming struct {
	Cause     string
	OnTimeout string        // new action at the deadline; empty: as before
	Reboot    bool          // end its processes before it resumes
	Lifetime  time.Duration // starts when the sandbox runs again; 0: the deadline stays
}

// Resumed reports that it runs again.
type Resumed struct{ Message string } // why a requested pause failed

// Snapshotted reports that a snapshot of it was taken.
type Snapshotted struct {
	Snapshot SnapshotID
	Memory   bool
}

// NetworkSet changes its network; its host applies the change.
type NetworkSet struct{ Network Network }

// NetworkUsed is the number of bytes sent and received since the sandbox was created,
// through the proxy (payload) and through its interface (whole frames, including blocked
// ones), as far as its host recorded them. Two losses are possible: the last minute of proxy
// traffic before a kill of hostd, and the last minute of interface traffic of a sandbox
// that ended by itself.
type NetworkUsed struct {
	Sent, Received uint64
	Link           LinkUsed // included in the sums; zero: it had no interface
}

// LinkUsed is the last reading of an interface's counters, from which the next run of the
// host continues.
type LinkUsed struct {
	Index          uint32 // the kernel's interface number: higher for a later interface
	Sent, Received uint64
}

// Counted returns u updated with a new reading of the interface. An older reading, or one
// of the previous interface, changes nothing.
func (u NetworkUsed) Counted(now LinkUsed) NetworkUsed {
	was := u.Link
	switch {
	case now.Index < was.Index || now.Index == was.Index && (now.Sent < was.Sent || now.Received < was.Received):
		return u
	case now.Index > was.Index:
		was = LinkUsed{}
	}
	return NetworkUsed{Sent: u.Sent + now.Sent - was.Sent, Received: u.Received + now.Received - was.Received, Link: now}
}

// DeadlineSet moves the deadline.
type DeadlineSet struct{ Deadline time.Time }

// Warned reports that the sandbox will soon reach its hard end.
type Warned struct{ HardEnd time.Time }

// Mounted reports that a gateway stores what changes in the sandbox's workspace. The end of the sandbox waits
// for its Unmounted.
type Mounted struct{ Gateway string }

// Unmounted reports that no gateway stores what changes in the sandbox's workspace, and what was not stored as far
// as that is known.
type Unmounted struct {
	Unstored []string  // paths of changed files; at most MaxUnstored
	Count    uint32    // of changed files
	Stored   time.Time // changes until then were stored; zero: that is not known
}

// MaxUnstored is the maximum number of paths in an Unmounted.
const MaxUnstored = 50

// Stopping requests the end; its host destroys the sandbox.
type Stopping struct{ Cause string }

// Destroyed reports that nothing of the sandbox is left.
type Destroyed struct{ Cause string }

// Lost reports that its host stopped responding.
type Lost struct{ Reason string }

// Failed reports that its host could not create it.
type Failed struct{ Message string }

func (Requested) kind() string   { return "requested" }
func (Queued) kind() string      { return "queued" }
func (Placed) kind() string      { return "placed" }
func (Refused) kind() string     { return "refused" }
func (Running) kind() string     { return "running" }
func (DeadlineSet) kind() string { return "deadline_set" }
func (Pausing) kind() string     { return "pausing" }
func (Paused) kind() string      { return "paused" }
func (Resuming) kind() string    { return "resuming" }
func (Resumed) kind() string     { return "resumed" }
func (Snapshotted) kind() string { return "snapshotted" }
func (NetworkSet) kind() string  { return "network_set" }
func (NetworkUsed) kind() string { return "network_used" }
func (Warned) kind() string      { return "warned" }
func (Mounted) kind() string     { return "mounted" }
func (Unmounted) kind() string   { return "unmounted" }
func (Stopping) kind() string    { return "stopping" }
func (Destroyed) kind() string   { return "destroyed" }
func (Lost) kind() string        { return "lost" }
func (Failed) kind() string      { return "failed" }

// Type returns the event's name on text surfaces.
func (e Event) Type() string { return e.Body.kind() }

// The causes of an end, a pause or a resume.
const (
	CauseUser    = "user"         // requested
	CauseTimeout = "timeout"      // its deadline passed
	CauseTraffic = "traffic"      // a request needed it
	CauseLate    = "late"         // it did not run by Requested.RunBy
	CauseHardEnd = "max_lifetime" // Requested.HardEnd passed
)
