// Package template is the vocabulary of templates, from which the roots of
// sandboxes are made. It does no I/O.
//
// A template is a tree of files and what processes in it begin with. Its ID is
// the SHA-256 of its manifest, which names the SHA-256 of each part of the tree,
// so that what has the same ID is the same, for ever. Names and tags are not
// part of it: they are put on and moved, and the log says where they are.
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

// SumOf is the sum of a part.
func SumOf(b []byte) Sum {
	sum := sha256.Sum256(b)
	return Sum(hex.EncodeToString(sum[:]))
}

// ParseSum checks a sum that came from outside; past it, nobody thinks of paths.
func ParseSum(s string) (Sum, error) {
	if len(s) != hexLen || !isHex(s) {
		return "", kind.New(kind.Invalid, "parse sum", "", "a sum is 64 hexadecimal digits")
	}
	return Sum(s), nil
}

// ParseID checks an ID that came from outside.
func ParseID(s string) (ID, error) {
	if len(s) != hexLen || !isHex(s) {
		return "", kind.New(kind.Invalid, "parse template id", "", "a template's id is 64 hexadecimal digits")
	}
	return ID(s), nil
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// Ref is how a template is asked for: by a name and a tag, or by its ID.
type Ref struct {
	Name, Tag string
	ID        string // its ID or the beginning of it; empty: by Name
}

// The template that is there without being made: the host's own files.
const (
	Host = "host"
	Base = "base" // the name that clients of E2B ask for unless told otherwise

	// Interpreter is the name that E2B's code interpreter SDK asks for. It means the
	// template BuiltInterpreter once that exists, and the host's own files until then.
	Interpreter      = "code-interpreter-v1"
	BuiltInterpreter = "code-interpreter"
)

// DefaultTag is the tag of who names none.
const DefaultTag = "latest"

const (
	maxName   = 63
	minPrefix = 12 // characters of an ID that may stand for it
)

// IsHost reports whether a template's name or ID means the host's own files.
func IsHost(s string) bool { return s == "" || s == Host || s == Base || s == Interpreter }

// String is the reference as people write it.
func (r Ref) String() string {
	switch {
	case r.ID != "":
		return r.ID
	case r.Tag == "" || r.Tag == DefaultTag:
		return r.Name
	}
	return r.Name + ":" + r.Tag
}

// ParseRef reads NAME, NAME:TAG, or an ID or at least its first 12 digits. Names
// and tags are 1 to 63 of a-z 0-9 - _, a tag also of dots; they begin with a
// letter or digit. What is nothing of that is NotFound: there can be no such
// template.
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

// maybeID reports whether s is read as an ID, or the beginning of one.
func maybeID(s string) bool { return len(s) >= minPrefix && len(s) <= hexLen && isHex(s) }

// ParseNew is ParseRef for a name that is to be put on a template.
func ParseNew(s string) (Ref, error) {
	r, err := ParseRef(s)
	switch {
	case err != nil:
		return r, kind.Newf(kind.Invalid, "name template", "",
			"template name '%s': NAME or NAME:TAG of up to 63 of a-z 0-9 - _ each", s)
	case r.ID != "" || maybeID(r.Name): // without its tag nobody would find it
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
