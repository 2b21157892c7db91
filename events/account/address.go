package account

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Address is a mail address in lower case. A user has one account however the address was
// written.
type Address string

// ID is the id of an address's account: a hash, and a token of a subject.
type ID string

const (
	maxAddress = 254
	maxLocal   = 64
	maxLabel   = 63

	// atoms are the characters of a local part besides letters and digits (RFC 5322, atext).
	atoms = "!#$%&'*+-/=?^_`{|}~."
)

// ID returns the id of the address's account.
func (a Address) ID() ID {
	sum := sha256.Sum256([]byte(a))
	return ID(hex.EncodeToString(sum[:]))
}

// Domain returns the part of the address after the @.
func (a Address) Domain() string {
	return string(a[strings.LastIndexByte(string(a), '@')+1:])
}

// ParseAddress parses an address from a client: letters, digits and the other characters of
// atoms, an @, and a domain of at least two labels. It rejects quoted local parts and literal
// addresses, which no user has.
func ParseAddress(s string) (Address, error) {
	local, domain, ok := strings.Cut(s, "@")
	switch {
	case s == "":
		return "", kind.New(kind.Invalid, "parse address", "", "email is required")
	case !ok, len(s) > maxAddress, !validLocal(local), !validDomain(domain):
		return "", kind.New(kind.Invalid, "parse address", "", "email is not a mail address")
	}
	return Address(strings.ToLower(s)), nil
}

func validLocal(s string) bool {
	if s == "" || len(s) > maxLocal || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte(atoms, s[i]) < 0 {
			return false
		}
	}
	return true
}

func validDomain(s string) bool {
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > maxLabel || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		for i := range len(l) {
			if !alphanumeric(l[i]) && l[i] != '-' {
				return false
			}
		}
	}
	last := labels[len(labels)-1]
	return len(labels) > 1 && strings.Trim(last, "0123456789") != ""
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}
