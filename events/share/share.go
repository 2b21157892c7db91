package share

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	// Prefix is the beginning of every token.
	Prefix = "msh_"
	// DefaultAge is the time until a share expires unless its owner chooses another.
	DefaultAge = 7 * 24 * time.Hour
	// MaxAge is the maximum time until a share expires.
	MaxAge = 90 * 24 * time.Hour

	tokenBytes  = 32
	tokenLength = len(Prefix) + (tokenBytes*8+5)/6
	maxID       = 64
)

// ID identifies a share. It is a token of a subject.
type ID string

// ParseID checks an id from a client. It returns NotFound if no share can have it.
func ParseID(s string) (ID, error) {
	ok := len(s) > 0 && len(s) <= maxID
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if !ok {
		return "", NotFound("")
	}
	return ID(strings.Clone(s)), nil
}

// NotFound returns the error for a share that does not exist or belongs to another tenant.
func NotFound(id ID) error {
	return kind.New(kind.NotFound, "find share", string(id), "share not found")
}

// Hash is the SHA-256 of a token.
type Hash [sha256.Size]byte

// ParseToken returns the hash of a token from a client. ok is false if s is not a token.
func ParseToken(s string) (h Hash, ok bool) {
	if len(s) != tokenLength || !strings.HasPrefix(s, Prefix) {
		return h, false
	}
	return sha256.Sum256([]byte(s)), true
}

// Share permits the holder of its token to read.
type Share struct {
	ID      ID
	Tenant  string
	Sandbox sandbox.ID  // of the process, if one is named
	Process process.ID  // empty: all processes of the sandbox
	Seq     process.Seq // last event of the process that can be read; 0: no limit
	Hash    Hash        // of the token
	Created time.Time
	Expires time.Time
	Revoked time.Time // zero: not revoked
	Rev     uint64    // stream sequence, which the next change must expect
}

// Target is what a share is for: a process, or a sandbox with all its processes.
type Target struct {
	Sandbox sandbox.ID
	Process process.ID
	Seq     process.Seq
}

// New returns a share that is not stored yet, and its token. It returns Invalid if age is negative or
// above MaxAge, or if a limit has no process; age 0 means DefaultAge.
func New(tenant string, to Target, age time.Duration, now time.Time) (s Share, token string, err error) {
	if age == 0 {
		age = DefaultAge
	}
	if age < 0 || age > MaxAge {
		return s, "", kind.Newf(kind.Invalid, "make share", "", "expires %s must be above 0 and at most %s", age, MaxAge)
	}
	switch {
	case to.Process != "":
		to.Sandbox = to.Process.Sandbox()
	case to.Seq != 0:
		return s, "", kind.New(kind.Invalid, "make share", "", "seq requires a process")
	}
	var raw [tokenBytes]byte
	rand.Read(raw[:])
	token = Prefix + base64.RawURLEncoding.EncodeToString(raw[:])
	s = Share{
		ID: ID(rand.Text()), Tenant: tenant, Sandbox: to.Sandbox, Process: to.Process, Seq: to.Seq,
		Hash: sha256.Sum256([]byte(token)), Created: now, Expires: now.Add(age),
	}
	return s, token, nil
}

// Ended returns when the share stopped permitting anything: it was revoked, or expired. ok is false
// if it has not.
func (s *Share) Ended(now time.Time) (at time.Time, ok bool) {
	switch {
	case !s.Revoked.IsZero() && s.Revoked.Before(s.Expires):
		return s.Revoked, true
	case !now.Before(s.Expires):
		return s.Expires, true
	}
	return time.Time{}, false
}

// Reads reports whether the share permits reading a process.
func (s *Share) Reads(id process.ID) bool {
	return s.Process == id || s.Process == "" && s.Sandbox == id.Sandbox()
}
