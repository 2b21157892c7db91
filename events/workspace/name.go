package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
)

// Limits.
const (
	MaxFile  = 5 << 30 // maximum bytes of a file
	MaxFiles = 100_000 // maximum number of files of a workspace

	maxID      = 128  // bytes
	maxPath    = 1024 // bytes
	maxSegment = 255  // bytes, as file systems have
)

// Scope identifies a workspace.
type Scope struct{ Tenant, App, Set string }

// ParseScope checks ids from a client. It returns Invalid if a workspace cannot have them.
func ParseScope(tenant, app, set string) (Scope, error) {
	switch {
	case !validID(app):
		return Scope{}, invalidID("app_id")
	case !validID(set):
		return Scope{}, invalidID("capset_id")
	}
	return Scope{strings.Clone(tenant), strings.Clone(app), strings.Clone(set)}, nil
}

func invalidID(field string) error {
	return kind.Newf(kind.Invalid, "parse", "", "%s must be 1 to %d letters, digits, dots, dashes and underscores, and must not begin with a dot", field, maxID)
}

func validID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_' && (c != '.' || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= maxID
}

// hash returns the token of a subject for a workspace of the tenant.
func (s Scope) hash() string { return hashOf(s.App + "/" + s.Set) }

// Path is the path of a file, relative to its workspace: names separated by slashes.
type Path string

// ParsePath checks a path from a client. It returns Invalid for a path that is absolute, not clean,
// or that no file system could have.
func ParsePath(s string) (Path, error) {
	switch {
	case s == "":
		return "", invalidPath("is empty")
	case len(s) > maxPath:
		return "", kind.Newf(kind.Invalid, "parse", "", "the path is longer than %d bytes", maxPath)
	case !utf8.ValidString(s):
		return "", invalidPath("is not UTF-8")
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return "", invalidPath("has a control character or a backslash")
	}
	for name := range strings.SplitSeq(s, "/") {
		switch {
		case name == "":
			return "", invalidPath("has an empty name")
		case name == "." || name == "..":
			return "", invalidPath("has the name " + name)
		case len(name) > maxSegment:
			return "", kind.Newf(kind.Invalid, "parse", "", "the path has a name of more than %d bytes", maxSegment)
		}
	}
	return Path(strings.Clone(s)), nil
}

func invalidPath(problem string) error {
	return kind.New(kind.Invalid, "parse", "", "the path "+problem)
}

// hash returns the token of a subject for the path.
func (p Path) hash() string { return hashOf(string(p)) }

const hashBytes = 20

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:hashBytes])
}

// NoFile returns the error for a file that does not exist.
func NoFile(p Path) error {
	return kind.New(kind.NotFound, "find file", string(p), "no such file at this path")
}

// NoWorkspace returns the error for a workspace that does not exist.
func NoWorkspace(s Scope) error {
	return kind.New(kind.NotFound, "find workspace", s.App+"/"+s.Set, "no such workspace")
}
