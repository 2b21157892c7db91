package attachment

import (
	"crypto/rand"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// DefaultTTL is how long a session waits for its client.
const DefaultTTL = 80 * time.Second

// Phase is the state of a session.
type Phase uint32

// The phases, as stored.
const (
	Attached Phase = iota + 1 // a gateway has the client
	Detached                  // the session waits for its client
	Ending                    // a gateway ends what belongs to it; the client cannot resume any more
	Ended
)

// Policy is what happens to a session whose client has left.
type Policy struct {
	Terminate bool          // the session ends at once
	TTL       time.Duration // how long the session waits for its client; 0: DefaultTTL, less: without limit
}

// Session is a client's session in a sandbox.
type Session struct {
	ID      string // random, a token of a subject
	Tenant  string
	Surface string // protocol of the client
	Sandbox sandbox.ID
	Owned   bool // the sandbox was created for the session and ends with it
	Policy  Policy
	Phase   Phase
	Gateway string    // run of the gateway that stored this
	Client  string    // the attachment, random
	Since   time.Time // when this was stored
	Rev     uint64    // stream sequence, which the next change must expect
}

// NewID returns a new id of a session, an attachment or a run.
func NewID() string { return rand.Text() }

// ParseID checks an id from a client. It returns NotFound if no session can have it.
func ParseID(s string) (string, error) {
	ok := len(s) > 0 && len(s) <= 64
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if !ok {
		return "", kind.New(kind.NotFound, "parse session id", "", "session not found")
	}
	return s, nil
}

// Holder is what is known about the gateway that has the client of a session.
type Holder struct {
	Gone  bool      // its lease has ended
	Since time.Time // when it ended
}

// Free returns since when a session has no client. ok is false if it has one, or may have one.
func (s *Session) Free(h Holder) (since time.Time, ok bool) {
	switch {
	case s.Phase == Detached:
		return s.Since, true
	case s.Phase == Attached && h.Gone:
		if h.Since.Before(s.Since) {
			return s.Since, true
		}
		return h.Since, true
	}
	return time.Time{}, false
}
