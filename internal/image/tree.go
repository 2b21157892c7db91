package image

import (
	"path"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// node is a name in a tree. A directory has exactly one.
type node struct {
	*inode
	parent *node
	kids   map[string]*node
	layer  int // layer that added the name
}

// inode is a file, which may have several names.
type inode struct {
	dir      bool
	link     bool
	target   string // of a link
	mode     int64  // permissions, set-uid and the like
	uid, gid int
	mtime    int64 // Unix seconds
	size     int64
	body     []byte // of a file in memory
	inMemory bool
	layer    int // layer of the body of other files,
	at       int // and the index of its entry there
	path     string
}

// tree is the result of merging layers, in memory only. Its paths are slash-separated,
// relative and clean.
type tree struct {
	root   *node
	names  int
	left   int64 // remaining bytes for files: a sparse file is larger than its layer
	memory int64 // remaining bytes of memory for names and bodies
}

const (
	maxPath = 4096
	maxLink = maxPath - 1 // maximum bytes of a link's target; the kernel appends a NUL
	maxName = 255
	maxHops = 40
	dirMode = 0o755

	maxMemory = 512 << 20 // maximum memory of a tree in bytes: about a million names
	perName   = 256       // bytes of memory per name, besides the name itself
)

func newTree(most int64) *tree {
	root := &node{inode: &inode{dir: true, mode: dirMode}, kids: map[string]*node{}}
	root.parent = root
	return &tree{root: root, left: most, memory: maxMemory}
}

// cleanPath splits a path of an archive. It rejects "..", which no legitimate archive has.
func cleanPath(p string) ([]string, error) {
	if len(p) > maxPath || strings.ContainsRune(p, 0) {
		return nil, invalid("path %.80q: too long, or has a NUL", p)
	}
	var out []string
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			return nil, invalid("path %q leaves the image", p)
		case len(name) > maxName:
			return nil, invalid("path %.80q: a name is too long", p)
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// walk returns the directory at names below n. It follows links as the kernel does with
// the tree as root. With mk it creates missing directories; otherwise it returns nil for them.
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
				return nil, invalid("too many links in the path %q", strings.Join(names, "/"))
			}
			n, todo = t.through(kid, n, todo)
		case kid.dir:
			n = kid
		default:
			return nil, invalid("%q is not a directory", strings.Join(names, "/"))
		}
	}
	return n, nil
}

// through resolves a link in a directory: it returns the directory and the names from
// which to continue.
func (t *tree) through(link, dir *node, todo []string) (*node, []string) {
	if path.IsAbs(link.target) {
		dir = t.root
	}
	return dir, append(strings.Split(link.target, "/"), todo...)
}

// put adds a name for a file to a directory, and replaces an existing one.
func (t *tree) put(dir *node, name string, f *inode, layer int) (*node, error) {
	if t.names++; t.names > template.MaxFiles {
		return nil, invalid("more than %d files", template.MaxFiles)
	}
	if err := t.account(perName + len(name) + len(f.target) + len(f.body)); err != nil {
		return nil, err
	}
	n := &node{inode: f, parent: dir, layer: layer}
	if f.dir {
		n.kids = map[string]*node{}
	}
	dir.kids[strings.Clone(name)] = n // a substring would keep the whole header, up to 1 MiB, in memory
	return n, nil
}

// account accounts for n bytes of memory.
func (t *tree) account(n int) error {
	if t.memory -= int64(n); t.memory < 0 {
		return invalid("its files' names exceed %d MiB of memory", maxMemory>>20)
	}
	return nil
}

// setDir creates a directory or replaces the attributes of an existing one.
func (t *tree) setDir(dir *node, name string, f *inode, layer int) error {
	if old := dir.kids[name]; old != nil && old.dir {
		old.inode, old.layer = f, layer
		return nil
	}
	_, err := t.put(dir, name, f, layer)
	return err
}

// hide removes the entries of lower layers at a name; entries of its own layer stay, also
// earlier ones.
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

// hideAll removes the entries of lower layers in a directory.
func (t *tree) hideAll(dir *node, layer int) {
	for name := range dir.kids {
		t.hide(dir, name, layer)
	}
}

// find returns the file or directory at a path and follows links; nil if it does not
// exist. It returns Invalid for link cycles and links out of the tree.
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
				return nil, invalid("its /%s is a link that leaves the image", p)
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
				return nil, invalid("its /%s follows too many links", p)
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

// write adds a file owned by root to the tree and creates its directory if needed.
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
