package image

import (
	"path"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// node is a name in a tree. A directory's is its only one.
type node struct {
	*inode
	parent *node
	kids   map[string]*node
	layer  int // that put the name there
}

// inode is a file, which may have several names.
type inode struct {
	dir      bool
	link     bool
	target   string // of a link
	mode     int64  // of the permissions, set-uid and the like
	uid, gid int
	mtime    int64 // Unix seconds
	size     int64
	body     []byte // of a file that is kept in memory
	inMemory bool
	layer    int // where the body of another is: the layer
	at       int // and the place among its entries
	path     string
}

// tree is what layers make together. Its paths are slash-separated, relative and
// clean; nothing of it is on a disk.
type tree struct {
	root  *node
	names int
	left  int64 // bytes that files may yet have: a sparse one has more than its layer
	room  int64 // bytes of memory that names and what is held of files may yet take
}

const (
	maxPath = 4096
	maxLink = maxPath - 1 // bytes of where a link leads to, behind which the kernel has a NUL
	maxName = 255
	maxHops = 40
	dirMode = 0o755

	maxRoom = 512 << 20 // bytes of memory that a tree may take: some million names
	perName = 256       // of them that a name takes besides its own
)

func newTree(most int64) *tree {
	root := &node{inode: &inode{dir: true, mode: dirMode}, kids: map[string]*node{}}
	root.parent = root
	return &tree{root: root, left: most, room: maxRoom}
}

// cleanPath splits a path as an archive has it. What climbs is refused: nothing
// that is meant well does.
func cleanPath(p string) ([]string, error) {
	if len(p) > maxPath || strings.ContainsRune(p, 0) {
		return nil, invalid("path %.80q: too long, or with a NUL", p)
	}
	var out []string
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			return nil, invalid("path %q leads out of the image", p)
		case len(name) > maxName:
			return nil, invalid("path %.80q: a name is too long", p)
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// walk finds the directory that names lead to from n, through links as the
// kernel would with the tree as its root. Directories that lack are made if make.
func (t *tree) walk(n *node, names []string, layer int, mk bool) (*node, error) {
	todo := slices.Clone(names)
	for hops := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			n = n.parent
			continue
		}
		kid := n.kids[name]
		switch {
		case kid == nil && !mk:
			return nil, nil
		case kid == nil:
			var err error
			if kid, err = t.put(n, name, &inode{dir: true, mode: dirMode}, layer); err != nil {
				return nil, err
			}
			n = kid
		case kid.link:
			if hops++; hops > maxHops {
				return nil, invalid("too many links on the way to %q", strings.Join(names, "/"))
			}
			n, todo = t.through(kid, n, todo)
		case kid.dir:
			n = kid
		default:
			return nil, invalid("%q is no directory", strings.Join(names, "/"))
		}
	}
	return n, nil
}

// through is where a link in a directory leads on from, and by what names.
func (t *tree) through(link, dir *node, todo []string) (*node, []string) {
	if path.IsAbs(link.target) {
		dir = t.root
	}
	return dir, append(strings.Split(link.target, "/"), todo...)
}

// put gives a file a name in a directory, in place of what had it.
func (t *tree) put(dir *node, name string, f *inode, layer int) (*node, error) {
	if t.names++; t.names > template.MaxFiles {
		return nil, invalid("more than %d files", template.MaxFiles)
	}
	if err := t.hold(perName + len(name) + len(f.target) + len(f.body)); err != nil {
		return nil, err
	}
	n := &node{inode: f, parent: dir, layer: layer}
	if f.dir {
		n.kids = map[string]*node{}
	}
	dir.kids[strings.Clone(name)] = n // a part of a header would hold all of that: a MiB
	return n, nil
}

// hold counts bytes that stay in memory.
func (t *tree) hold(n int) error {
	if t.room -= int64(n); t.room < 0 {
		return invalid("its files' names take more than %d MiB of memory", maxRoom>>20)
	}
	return nil
}

// setDir makes a directory, or changes the one that is there.
func (t *tree) setDir(dir *node, name string, f *inode, layer int) error {
	if old := dir.kids[name]; old != nil && old.dir {
		old.inode, old.layer = f, layer
		return nil
	}
	_, err := t.put(dir, name, f, layer)
	return err
}

// hide removes what a name has from layers below; what its own layer has there stays,
// also where it came before.
func (t *tree) hide(dir *node, name string, layer int) {
	old := dir.kids[name]
	if old == nil {
		return
	}
	if old.dir {
		t.hideAll(old, layer)
	}
	if old.layer < layer && len(old.kids) == 0 {
		delete(dir.kids, name)
	}
}

// hideAll removes what a directory has from layers below.
func (t *tree) hideAll(dir *node, layer int) {
	for name := range dir.kids {
		t.hide(dir, name, layer)
	}
}

// find gives the file or directory that a path leads to, through links; nil if there is
// none. Invalid for links that lead round in a circle, or out of the tree.
func (t *tree) find(p string) (*node, error) {
	n, todo := t.root, strings.Split(p, "/")
	for hops := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if n == t.root {
				return nil, invalid("its /%s is a link that leads out of it", p)
			}
			n = n.parent
			continue
		}
		kid := n.kids[name]
		switch {
		case kid == nil:
			return nil, nil
		case kid.link:
			if hops++; hops > maxHops {
				return nil, invalid("its /%s is a link to too many others", p)
			}
			n, todo = t.through(kid, n, todo)
		case !kid.dir && len(todo) > 0:
			return nil, nil // nothing is below a file
		default:
			n = kid
		}
	}
	return n, nil
}

// write puts a file of root's with a body into the tree; its directory is made if it
// lacks.
func (t *tree) write(p, body string, mode int64) error {
	dir, err := t.walk(t.root, strings.Split(path.Dir(p), "/"), 0, true)
	if err != nil {
		return err
	}
	_, err = t.put(dir, path.Base(p), &inode{
		mode: mode, body: []byte(body), inMemory: true, size: int64(len(body)),
	}, 0)
	return err
}

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "read image", "", format, args...)
}
