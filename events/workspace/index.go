package workspace

import (
	"strings"
	"time"

	"github.com/tidwall/btree"
)

// Usage is the size of a workspace.
type Usage struct {
	Scope Scope
	Bytes int64
	Files int
}

// index has the files of all workspaces. It is not safe for concurrent use.
type index struct {
	scopes  map[Scope]*files
	removed map[string]removal // by subject
}

// files are the files of a workspace; it has at least one.
type files struct {
	scope  Scope // whose strings all files share
	byPath btree.Map[Path, File]
	bytes  int64
}

// removal is a file that was removed.
type removal struct {
	rev uint64
	at  time.Time
}

func newIndex() index {
	return index{scopes: make(map[Scope]*files), removed: make(map[string]removal)}
}

// set applies the next message about a path.
func (x *index) set(e *entry) {
	of := x.scopes[e.scope]
	if e.file.object == "" {
		x.removed[e.subject()] = removal{e.rev, e.file.Modified}
		if of == nil {
			return
		}
		if was, ok := of.byPath.Delete(e.file.Path); ok {
			of.bytes -= was.Size
		}
		if of.byPath.Len() == 0 {
			delete(x.scopes, e.scope)
		}
		return
	}
	if of == nil {
		of = &files{scope: e.scope}
		x.scopes[e.scope] = of
	}
	if len(x.removed) > 0 {
		delete(x.removed, e.subject())
	}
	was, _ := of.byPath.Set(e.file.Path, e.file)
	of.bytes += e.file.Size - was.Size
}

func (x *index) get(s Scope, p Path) (File, bool) {
	if of := x.scopes[s]; of != nil {
		return of.byPath.Get(p)
	}
	return File{}, false
}

func (x *index) usage(s Scope) (Usage, bool) {
	of := x.scopes[s]
	if of == nil {
		return Usage{Scope: s}, false
	}
	return Usage{s, of.bytes, of.byPath.Len()}, true
}

// list returns at most limit files whose paths begin with prefix and follow after, and whether there are more.
func (x *index) list(s Scope, prefix string, after Path, limit int) (out []File, more bool) {
	of := x.scopes[s]
	if of == nil {
		return nil, false
	}
	of.byPath.Ascend(max(after, Path(prefix)), func(p Path, f File) bool {
		switch {
		case p == after:
			return true
		case !strings.HasPrefix(string(p), prefix):
			return false // all of a prefix are adjacent
		case len(out) == limit:
			more = true
			return false
		}
		out = append(out, f)
		return true
	})
	return out, more
}
