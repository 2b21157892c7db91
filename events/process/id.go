package process

import (
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// ID identifies a process for ever: "<ulid>-<sandbox>", the ULID in lower case. The gateway
// creates it before the first event exists, so that a retried Start finds its first
// attempt. It contains its sandbox, so that the id alone locates the record, even after the
// sandbox and host are gone.
type ID string

const ulidLen = ulid.EncodedSize

// NewID returns a new unique id.
func NewID(sbx sandbox.ID) ID { return join(ulid.Make(), sbx) }

// KeyedID returns the id of every Start in sbx with the same idempotency key, unless its
// first attempt was rejected: it is AttemptID's first attempt.
func KeyedID(sbx sandbox.ID, key string) ID { return AttemptID(sbx, key, 0) }

// AttemptID returns the id of attempt n to start a process for an idempotency key. If an
// attempt ended before anything ran, the next one follows: attempt n+1 begins only once the
// record of attempt n says so, and has a record of its own.
func AttemptID(sbx sandbox.ID, key string, n int) ID {
	text := "millrace start\x00" + string(sbx) + "\x00" + key
	if n > 0 {
		text += "\x00" + strconv.Itoa(n)
	}
	sum := sha256.Sum256([]byte(text))
	var u ulid.ULID
	copy(u[:], sum[:])
	u[0] &= 0x7f // keeps the text within 26 digits
	return join(u, sbx)
}

func join(u ulid.ULID, sbx sandbox.ID) ID {
	return ID(strings.ToLower(u.String()) + "-" + string(sbx))
}

// ParseID validates an id from outside. A parsed ID has no wildcards or path separators.
func ParseID(s string) (ID, error) {
	if len(s) > ulidLen+1 && s[ulidLen] == '-' {
		u, err := ulid.ParseStrict(strings.ToUpper(s[:ulidLen]))
		if err == nil && strings.ToLower(u.String()) == s[:ulidLen] {
			if _, err := sandbox.ParseID(s[ulidLen+1:]); err == nil {
				return ID(s), nil
			}
		}
	}
	return "", kind.New(kind.NotFound, "parse process id", "", "process not found")
}

// Sandbox returns the sandbox of the process.
func (id ID) Sandbox() sandbox.ID { return sandbox.ID(id[ulidLen+1:]) }

// Token returns the part of the id that is unique within its sandbox: its token in a
// subject, its name in the shim.
func (id ID) Token() string { return string(id[:ulidLen]) }

// IDOf joins the results of Token and Sandbox.
func IDOf(token string, sbx sandbox.ID) ID { return ID(token + "-" + string(sbx)) }
