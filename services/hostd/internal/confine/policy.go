package confine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Access is what a process may do with a file.
type Access int

// The values of Access, each with more rights than the one before.
const (
	None Access = iota
	Read
	Write
)

// maxRules is the maximum number of rules of a process.
const maxRules = 16 << 10

// devices are writable unless they are denied.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// policy is a confinement with its symbolic links resolved: the access to each path, with all
// below it.
type policy map[string]Access

// newPolicy resolves the paths of a confinement. A path that may not be missing is an error of
// kind.Invalid.
func newPolicy(c *process.Confinement) (policy, error) {
	p := make(policy)
	for _, list := range []struct {
		paths  []string
		access Access
	}{{c.Read, Read}, {c.Write, Write}, {c.Deny, None}} { // of one path's, the last counts
		for _, path := range list.paths {
			if err := p.add(path, list.access); err != nil {
				if errors.Is(err, fs.ErrNotExist) && slices.Contains(c.Optional, path) {
					continue
				}
				return nil, kind.Wrap(kind.Invalid, "confine", "", err)
			}
		}
	}
	for _, path := range devices {
		if !p.denies(path) {
			p[path] = Write
		}
	}
	return p, nil
}

// add adds a path, and if it is a symbolic link also its target: a link is as restricted as
// what it leads to, or it could be replaced.
func (p policy) add(path string, access Access) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	p[path] = access
	if info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		p[target] = access
	}
	return err
}

// denies reports whether a path is explicitly denied.
func (p policy) denies(path string) bool {
	for {
		if access, ok := p[path]; ok {
			return access == None
		}
		parent := filepath.Dir(path)
		if parent == path {
			return false
		}
		path = parent
	}
}

// grant calls rule with paths and the access to each with all below it, so that together they
// grant what the policy does, or less; see the package's doc.
func (p policy) grant(rule func(path string, access Access) error) error {
	n := 0
	counted := func(path string, access Access) error {
		if n++; n > maxRules {
			return kind.Newf(kind.Exhausted, "confine", "", "the confinement needs more than %d rules: the directories above its read-only and denied paths have too many entries", maxRules)
		}
		return rule(path, access)
	}
	for path, access := range p {
		if err := p.grantBelow(path, access, counted); err != nil {
			return err
		}
	}
	return nil
}

// grantBelow grants access to path, except to what has paths of its own.
func (p policy) grantBelow(path string, access Access, rule func(string, Access) error) error {
	least := p.least(path, access)
	if least > None {
		if err := rule(path, least); err != nil {
			return err
		}
	}
	if least == access {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return kind.Wrap(kind.Invalid, "confine", "", err)
	}
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		if _, own := p[child]; own {
			continue
		}
		if err := p.grantBelow(child, access, rule); err != nil {
			return err
		}
	}
	return nil
}

// least returns the least access to anything in path, of which most has the given one.
func (p policy) least(path string, access Access) Access {
	prefix := strings.TrimSuffix(path, "/") + "/"
	for other, a := range p {
		if a < access && strings.HasPrefix(other, prefix) {
			access = a
		}
	}
	return access
}
