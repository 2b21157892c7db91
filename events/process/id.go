package process

import (
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// ID names a process for ever: "<ulid>-<sandbox>", the ULID in lower case. It
// is made by the gateway before the first event exists, so that a retried Start
// meets its first attempt, and carries its sandbox, so that the id alone finds
// the record, also when sandbox and host are gone.
type ID string

const ulidLen = ulid.EncodedSize

// NewID makes an id no other process has.
func NewID(sbx sandbox.ID) ID { return join(ulid.Make(), sbx) }

// KeyedID makes the id that every Start in sbx with the same idempotency key gets,
// as long as none was refused: that of TryID's first try.
func KeyedID(sbx sandbox.ID, key string) ID { return TryID(sbx, key, 0) }

// TryID makes the id of a try to start what an idempotency key stands for. A try
// that ended before anything ran is followed by the next one: try n+1 begins only
// once the record of try n says so, and has a record of its own.
func TryID(sbx sandbox.ID, key string, n int) ID {
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

// ParseID checks an id that came from outside; past it, nobody thinks of
// wildcards or paths again.
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

// Sandbox is the sandbox the process runs in.
func (id ID) Sandbox() sandbox.ID { return sandbox.ID(id[ulidLen+1:]) }

// Token is the part of the id that is unique within its sandbox: its token in a
// subject, its name in the shim.
func (id ID) Token() string { return string(id[:ulidLen]) }

// IDOf puts together again what Token and Sandbox took apart.
func IDOf(token string, sbx sandbox.ID) ID { return ID(token + "-" + string(sbx)) }
