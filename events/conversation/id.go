package conversation

import (
	"crypto/rand"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// ID identifies a conversation: "ses_" and 24 of [a-z0-9].
type ID string

const (
	prefix = "ses_"
	digits = 24
	base32 = "abcdefghijklmnopqrstuvwxyz234567"
)

// NewID returns an id of 120 random bits.
func NewID() ID {
	raw := make([]byte, digits)
	rand.Read(raw)
	for i, b := range raw {
		raw[i] = base32[int(b)%len(base32)]
	}
	return ID(prefix + string(raw))
}

// ParseID checks an id from a client. It returns NotFound if no conversation can have it.
func ParseID(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	ok = ok && len(rest) == digits
	for i := 0; ok && i < len(rest); i++ {
		c := rest[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
	}
	if !ok {
		return "", NotFound("")
	}
	return ID(s), nil
}

// NotFound returns the error for a conversation that does not exist.
func NotFound(id ID) error {
	return kind.New(kind.NotFound, "find conversation", string(id), "session not found")
}
