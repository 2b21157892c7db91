package session

import (
	"encoding/hex"
	"math/big"
	"regexp"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Codes of errors, which are the names of Backend.AI's error types.
const (
	BadParams     = "invalid-api-params"
	NotFound      = "object-not-found"
	ImageNotFound = "image-not-found"
	AppNotFound   = "app-not-found"
	Exists        = "session-already-exists"
)

// namePattern is the form of a session's name. Its ends are letters, digits or underscores.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*[A-Za-z0-9_]$`)

const minName, maxName = 4, 64

// CheckName returns Invalid unless a session may have the name.
func CheckName(name string) error {
	if len(name) < minName || len(name) > maxName || !namePattern.MatchString(name) {
		return invalid("name: must have %d to %d letters, digits, underscores, dots or hyphens, and begin and end with one of the first three", minName, maxName)
	}
	return nil
}

func invalid(format string, args ...any) error {
	e := kind.Newf(kind.Invalid, "create session", "", format, args...)
	return kind.Coded(kind.Invalid, "create session", "", BadParams, kind.Message(e))
}

// Missing returns the error for a session that does not exist or belongs to another tenant.
func Missing() error {
	return kind.Coded(kind.NotFound, "find session", "", NotFound, "No such session.")
}

// A UUID contains the 20 digits to the base 36 that a sandbox's id has after its prefix: 104 bits,
// around the bits for the version (8: custom) and the variant.
const (
	idDigits = 20
	idBytes  = 13
)

// UUID returns the UUID of a sandbox with an id of the usual length, and otherwise "".
func UUID(id sandbox.ID) string {
	if len(id) != 1+idDigits || id[0] != 'i' {
		return ""
	}
	n, ok := new(big.Int).SetString(string(id[1:]), 36)
	if !ok {
		return ""
	}
	var v [idBytes]byte
	n.FillBytes(v[:])
	var u [16]byte
	copy(u[0:6], v[0:6])
	u[6], u[7], u[8] = 0x80, v[6], 0x80
	copy(u[9:15], v[7:13])
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ParseUUID returns the sandbox of a UUID, with or without hyphens, and false for any other text.
func ParseUUID(s string) (sandbox.ID, bool) {
	u, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(u) != 16 {
		return "", false
	}
	v := append(append(append([]byte{}, u[0:6]...), u[7]), u[9:15]...)
	digits := new(big.Int).SetBytes(v).Text(36)
	if len(digits) > idDigits {
		return "", false
	}
	id := sandbox.ID("i" + strings.Repeat("0", idDigits-len(digits)) + digits)
	return id, strings.ReplaceAll(UUID(id), "-", "") == strings.ToLower(strings.ReplaceAll(s, "-", ""))
}
