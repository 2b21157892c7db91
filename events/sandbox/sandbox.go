// Package sandbox is the vocabulary of a sandbox's record: its events and what
// they mean for its state. It does no I/O.
package sandbox

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// ID names a sandbox: 1 to 40 of [a-z0-9]. Ours are "i" and 20 characters, as
// E2B's are (WIRE-E2B 1).
type ID string

const (
	alphabet  = "0123456789abcdefghijklmnopqrstuvwxyz"
	maxIDLen  = 40
	newIDLen  = 21
	newPrefix = 'i'
)

// NewID makes an id of 103 random bits.
func NewID() ID { return ID(newID(newPrefix)) }

// KeyedID is the id that a key always has: who was cut off while he made the
// sandbox finds it. Nobody else may know the key.
func KeyedID(key string) ID { return ID(keyedID(newPrefix, key)) }

func newID(prefix byte) string {
	return makeID(prefix, func(raw *[sha256.Size]byte) {
		rand.Read(raw[:]) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	})
}

func keyedID(prefix byte, key string) string {
	raw := sha256.Sum256([]byte(key))
	return makeID(prefix, func(next *[sha256.Size]byte) {
		raw = sha256.Sum256(raw[:])
		*next = raw
	})
}

// makeID makes an id of what fill gives.
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

// ParseID checks an id that came from outside; past it, nobody thinks of
// wildcards or paths again.
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
// Paused, Resuming, Resumed, Snapshotted, NetworkSet, NetworkUsed, Stopping, Destroyed, Lost or Failed.
//
//sumtype:decl
type Body interface{ kind() string }

// Requested is the first event: somebody wants a sandbox.
type Requested struct {
	Template      string
	Driver        string // empty: the host's default
	Metadata      map[string]string
	Env           map[string]string
	Lifetime      time.Duration // counted from when it runs; 0: it has no end
	PlaceBy       time.Time     // until then it waits for a host with free capacity; zero: it does not wait
	RunBy         time.Time     // it ends if it does not run by then; zero: no bound
	RequestHash   []byte        // of the request that was sent with an idempotency key; empty: it had none
	Secure        bool          // data-plane requests need the sandbox's token
	AllowInternet bool
	CPUMilli      uint32
	MemoryMiB     uint32
	DiskMiB       uint32
	PIDs          uint32
	OnTimeout     string // OnTimeoutKill, OnTimeoutPause or OnTimeoutPauseFiles
	AutoResume    bool   // whoever needs it while it is paused resumes it
	Alias         string
	Isolation     Isolation  // the least there must be; empty: the host's default
	From          SnapshotID // what it begins from; empty: from the template alone
	FromSandbox   ID         // that From was made of
	FromHost      string     // that has From
	Network       Network    // its Internet is AllowInternet
	Volumes       []Mount
	VolumeHost    string // that has all of Volumes
	Built         string // the template as clients know it, where it was built; empty: Template
	Build         string // the build that works in it: it is not listed
	User          string // who runs what names no user; empty: the template's
	Workdir       string // where; empty: the template's
	Start         string // a command of the shell's that it begins with; empty: none
	Ready         string // another, which ends with 0 when that one is ready
	Identity      Identity
	Demanded      []Limit // limits that must be enforced; the others may be only a default
}

// What happens at a sandbox's deadline.
const (
	OnTimeoutKill  = "kill"
	OnTimeoutPause = "pause"
	// OnTimeoutPauseFiles is a pause that keeps the files alone.
	OnTimeoutPauseFiles = "pause_files"
)

// Queued says that the sandbox waits for a host, and why: each host that could take
// it is full, or is still starting.
type Queued struct{ Reason string }

// Placed says which host is to make it, and how; the first Placed wins.
type Placed struct {
	Host   string
	Epoch  uint64
	Driver string // empty: the host's default
}

// Refused says that no host may take it. Kind is a kind.Kind: Exhausted where no
// host has room, Unavailable where there is no host.
type Refused struct {
	Kind   uint32
	Reason string
}

// Running says that processes can be started in it, and what it really is.
type Running struct {
	Driver    string
	Isolation Isolation // empty: written before there were levels
	Can       Abilities
	// What its driver gives who asks for no limit, as a machine has some memory and some
	// CPUs; 0: no limit.
	CPUMilli, MemoryMiB uint32
	Unenforced          []Limit // limits of the request that its driver does not enforce
}

// Abilities are what can be done with a sandbox besides running processes.
type Abilities struct {
	Pause  bool
	Files  bool // a snapshot keeps its files
	Memory bool // and its processes
}

// Pausing says that it is to stand still; its host sees to it.
type Pausing struct {
	Cause string
	Files bool // only they are kept: its processes end when it goes on
}

// Paused says that it stands still: no process of it runs, none has ended.
type Paused struct{ Message string } // why it could not go on, if that was wanted

// Resuming says that it is to go on; its host sees to it.
type Resuming struct {
	Cause     string
	OnTimeout string        // from now on; empty: as before
	Reboot    bool          // its processes end before it goes on
	Lifetime  time.Duration // counted from when it runs again; 0: its deadline stays
}

// Resumed says that it goes on.
type Resumed struct{ Message string } // why it could not be paused, if that was wanted

// Snapshotted says that a snapshot of it was made.
type Snapshotted struct {
	Snapshot SnapshotID
	Memory   bool
}

// NetworkSet changes what it may reach and who may reach it; its host sees to it.
type NetworkSet struct{ Network Network }

// NetworkUsed says how many bytes went out of it and came in since it was made,
// through the proxy (what was carried) and through its interface (whole frames,
// also those that were refused), as far as its host knows: what went through the
// proxy in the last minute of a host's daemon that was killed is not counted, nor
// what went through the interface in the last minute of a sandbox that ended by
// itself.
type NetworkUsed struct {
	Sent, Received uint64
	Link           LinkUsed // is in these; zero: it has had no interface
}

// LinkUsed is what an interface had counted when it was last read, from which
// another life of the host counts on.
type LinkUsed struct {
	Index          uint32 // the kernel's number of it: a later one's is higher
	Sent, Received uint64
}

// Counted is u with what the interface says now; what was read earlier, of it or of
// the one before, changes nothing.
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

// DeadlineSet moves the hard end.
type DeadlineSet struct{ Deadline time.Time }

// Stopping says that it is to end; its host destroys it.
type Stopping struct{ Cause string }

// Destroyed says that nothing of it is left.
type Destroyed struct{ Cause string }

// Lost says that its host fell silent.
type Lost struct{ Reason string }

// Failed says that its host could not make it.
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
func (Stopping) kind() string    { return "stopping" }
func (Destroyed) kind() string   { return "destroyed" }
func (Lost) kind() string        { return "lost" }
func (Failed) kind() string      { return "failed" }

// Type is the event's name on text surfaces.
func (e Event) Type() string { return e.Body.kind() }

// The causes of an end, of a pause and of its end.
const (
	CauseUser    = "user"    // asked for
	CauseTimeout = "timeout" // its deadline passed
	CauseTraffic = "traffic" // somebody needed it
	CauseLate    = "late"    // it did not run by Requested.RunBy
)
