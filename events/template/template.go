// Package template is the vocabulary of templates, from which the root file systems of
// sandboxes are made. It does no I/O.
//
// A template is a tree of files and the defaults of its processes. Its ID is the SHA-256 of
// its manifest, which lists the SHA-256 of each part of the tree, so that an ID identifies
// its content for ever. Names and tags are not part of it: they are assigned and moved, and
// the log records where they are.
package template

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// ID is the SHA-256 of a manifest, in lower-case hexadecimal.
type ID string

// Sum is the SHA-256 of a part of a tree, in lower-case hexadecimal.
type Sum string

const hexLen = 2 * sha256.Size

// SumOf returns the sum of a part.
func SumOf(b []byte) Sum {
	sum := sha256.Sum256(b)
	return Sum(hex.EncodeToString(sum[:]))
}

// ParseSum validates a sum from outside. A parsed Sum has no path separators.
func ParseSum(s string) (Sum, error) {
	if len(s) != hexLen || !isHex(s) {
		return "", kind.New(kind.Invalid, "parse sum", "", "a sum is 64 hexadecimal digits")
	}
	return Sum(s), nil
}

// ParseID validates an ID from outside.
func ParseID(s string) (ID, error) {
	if len(s) != hexLen || !isHex(s) {
		return "", kind.New(kind.Invalid, "parse template id", "", "a template's id is 64 hexadecimal digits")
	}
	return ID(s), nil
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// Ref refers to a template by a name and a tag, or by its ID.
type Ref struct {
	Name, Tag string
	ID        string // its ID or a prefix of it; empty: by Name
}

// The names of the template that exists without being made: the host's own files.
const (
	Host = "host"
	Base = "base" // the default template of E2B clients

	// Interpreter is the template that E2B's code interpreter SDK requests. It means the
	// template BuiltInterpreter once that exists, and the host's own files until then.
	Interpreter      = "code-interpreter-v1"
	BuiltInterpreter = "code-interpreter"
)

// DefaultTag is the tag of a reference without one.
const DefaultTag = "latest"

const (
	maxName   = 63
	minPrefix = 12 // minimum length of a prefix of an ID
)

// IsHost reports whether a template's name or ID means the host's own files.
func IsHost(s string) bool { return s == "" || s == Host || s == Base || s == Interpreter }

// String returns the reference as users write it.
func (r Ref) String() string {
	switch {
	case r.ID != "":
		return r.ID
	case r.Tag == "" || r.Tag == DefaultTag:
		return r.Name
	}
	return r.Name + ":" + r.Tag
}

// ParseRef parses NAME, NAME:TAG, or an ID or at least its first 12 digits. Names and tags
// are 1 to 63 of a-z 0-9 - _, a tag also of dots; they begin with a letter or digit. Any
// other reference is NotFound, because no such template can exist.
func ParseRef(s string) (Ref, error) {
	if maybeID(s) {
		return Ref{ID: s}, nil
	}
	name, tag, tagged := strings.Cut(s, ":")
	if !tagged {
		tag = DefaultTag
	}
	if !plain(name, "") || !plain(tag, ".") {
		return Ref{}, kind.Newf(kind.NotFound, "parse template", "", "template '%s' not found", s)
	}
	return Ref{Name: name, Tag: tag}, nil
}

// maybeID reports whether s is parsed as an ID or a prefix of one.
func maybeID(s string) bool { return len(s) >= minPrefix && len(s) <= hexLen && isHex(s) }

// ParseNew is ParseRef for a name to be assigned to a template.
func ParseNew(s string) (Ref, error) {
	r, err := ParseRef(s)
	switch {
	case err != nil:
		return r, kind.Newf(kind.Invalid, "name template", "",
			"template name '%s': NAME or NAME:TAG of up to 63 of a-z 0-9 - _ each", s)
	case r.ID != "" || maybeID(r.Name): // without its tag it could not be found
		return r, kind.Newf(kind.Invalid, "name template", "", "template name '%s' looks like an id", s)
	case IsHost(r.Name):
		return r, kind.Newf(kind.Invalid, "name template", "", "template name '%s' means the host's own files", s)
	}
	return r, nil
}

func plain(s, also string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if i > 0 {
			ok = ok || c == '-' || c == '_' || strings.IndexByte(also, c) >= 0
		}
		if !ok {
			return false
		}
	}
	return true
}
