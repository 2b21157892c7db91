package session

import (
	"context"
	"path"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// Limits of a walk, whatever the client asks for.
const (
	walkDepth       = 128
	walkDirectories = 1 << 14
	walkEntries     = 1 << 15
	walkErrors      = 1 << 10
	walkBytes       = 8 << 20 // of all paths
)

// walker walks a tree, breadth first.
type walker struct {
	files Files
	form  fileuri.Form
	opt   protocol.WalkOptions
	out   protocol.Walked
	bytes int
	seen  map[string]bool // real paths of the directories, if links are followed
}

type walkDir struct {
	path  string
	depth uint64
}

// walk serves fs/walk. Every step is an operation of its own in the sandbox, and so contained
// by it whatever the tree becomes meanwhile.
func walk(ctx context.Context, f Files, root protocol.Path, opt *protocol.WalkOptions) (protocol.Walked, error) {
	w := &walker{files: f, form: root.Form, opt: *opt, out: protocol.Walked{Entries: []protocol.WalkEntry{}, Errors: []protocol.WalkError{}}}
	w.opt.MaxDepth = min(w.opt.MaxDepth, walkDepth)
	w.opt.MaxDirectories = min(w.opt.MaxDirectories, walkDirectories)
	w.opt.MaxEntries = min(w.opt.MaxEntries, walkEntries)
	if opt.FollowLinks {
		w.seen = make(map[string]bool)
	}
	info, err := f.Stat(ctx, root.Name)
	if err != nil {
		return w.out, err
	}
	if !info.Dir {
		return w.out, kind.Newf(kind.Internal, "walk", "", "path is not a directory: %s", root.Name)
	}
	queue := []walkDir{{root.Name, 0}}
	for n := uint64(0); len(queue) > 0; n++ {
		if err := ctx.Err(); err != nil {
			return w.out, err
		}
		if n == w.opt.MaxDirectories {
			w.out.Truncated = true
			break
		}
		dir := queue[0]
		queue = queue[1:]
		below, ok := w.read(ctx, dir)
		if queue = append(queue, below...); !ok {
			break
		}
	}
	return w.out, nil
}

// read adds the entries of a directory and returns the directories below it; false if the
// walk is over.
func (w *walker) read(ctx context.Context, dir walkDir) ([]walkDir, bool) {
	if w.cycle(ctx, dir.path) {
		return nil, true
	}
	list, more, err := w.files.List(ctx, dir.path, int(w.opt.MaxEntries)-len(w.out.Entries)+1)
	if err != nil {
		if len(w.out.Errors) == walkErrors {
			w.out.Truncated = true
			return nil, false
		}
		w.out.Errors = append(w.out.Errors, protocol.WalkError{Path: fileuri.Format(dir.path, w.form), Message: kind.Message(err)})
		return nil, true
	}
	w.out.Truncated = w.out.Truncated || more
	var below []walkDir
	for _, e := range list {
		if !e.Dir && !e.Regular || e.Link && e.Dir && !w.opt.FollowLinks {
			continue
		}
		at := path.Join(dir.path, e.Name)
		if uint64(len(w.out.Entries)) == w.opt.MaxEntries || w.bytes+len(at) > walkBytes {
			w.out.Truncated = true
			return nil, false
		}
		w.bytes += len(at)
		kindOf := "file"
		if e.Dir {
			kindOf = "directory"
			switch {
			case w.opt.PruneHiddenNames && strings.HasPrefix(e.Name, "."):
			case dir.depth < w.opt.MaxDepth:
				below = append(below, walkDir{at, dir.depth + 1})
			default:
				w.out.Truncated = true
			}
		}
		w.out.Entries = append(w.out.Entries, protocol.WalkEntry{Path: fileuri.Format(at, w.form), Kind: kindOf})
	}
	return below, true
}

// cycle reports whether a directory was read before, under whatever name.
func (w *walker) cycle(ctx context.Context, dir string) bool {
	resolver, ok := w.files.(RealPather)
	if w.seen == nil || !ok {
		return false
	}
	at, err := resolver.RealPath(ctx, dir)
	if err != nil {
		return false
	}
	before := w.seen[at]
	w.seen[at] = true
	return before
}
