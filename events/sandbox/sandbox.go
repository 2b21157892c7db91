// Package sandbox is the vocabulary of a sandbox's record: its events and what
// they mean for its state. It does no I/O.
package sandbox

import (
	"crypto/rand"
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
func NewID() ID {
	b := make([]byte, 0, newIDLen)
	b = append(b, newPrefix)
	var raw [32]byte
	for len(b) < newIDLen {
		rand.Read(raw[:]) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
		for _, r := range raw {
			if int(r) < len(alphabet)*7 && len(b) < newIDLen {
				b = append(b, alphabet[int(r)%len(alphabet)])
			}
		}
	}
	return ID(b)
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

// Body is one of Requested, Placed, Refused, Running, DeadlineSet, Stopping,
// Destroyed, Lost or Failed.
//
//sumtype:decl
type Body interface{ kind() string }

// Requested is the first event: somebody wants a sandbox.
type Requested struct {
	Template      string
	Driver        string // empty: the host's default
	Metadata      map[string]string
	Env           map[string]string
	Deadline      time.Time // the hard end unless moved
	Secure        bool      // data-plane requests need the sandbox's token
	AllowInternet bool
	CPUMilli      uint32
	MemoryMiB     uint32
	DiskMiB       uint32
	OnTimeout     string // "kill" or "pause"
	AutoResume    bool
	Alias         string
}

// Placed says which host is to make it; the first Placed wins.
type Placed struct {
	Host  string
	Epoch uint64
}

// Refused says that no host may take it. Kind is a kind.Kind: Exhausted where no
// host has room, Unavailable where there is no host.
type Refused struct {
	Kind   uint32
	Reason string
}

// Running says that processes can be started in it.
type Running struct{ Driver string }

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
func (Placed) kind() string      { return "placed" }
func (Refused) kind() string     { return "refused" }
func (Running) kind() string     { return "running" }
func (DeadlineSet) kind() string { return "deadline_set" }
func (Stopping) kind() string    { return "stopping" }
func (Destroyed) kind() string   { return "destroyed" }
func (Lost) kind() string        { return "lost" }
func (Failed) kind() string      { return "failed" }

// Type is the event's name on text surfaces.
func (e Event) Type() string { return e.Body.kind() }

// The causes of an end.
const (
	CauseUser    = "user"    // asked for
	CauseTimeout = "timeout" // its deadline passed
)
