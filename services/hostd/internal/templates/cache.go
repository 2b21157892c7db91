package templates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

// Source provides the parts of templates.
type Source interface {
	// Part returns a part as it was packed, or NotFound.
	Part(ctx context.Context, sum template.Sum) ([]byte, error)
}

// Config configures a Cache. Dir and Source are required.
type Config struct {
	Dir    string // absolute, for one Cache at a time; created with mode 0700
	Source Source
	Copies Source // source of the parts of copies of hosts' files; nil: none
	Max    int64  // maximum size of unused trees, in bytes; 0: 32 GiB
	Log    *slog.Logger

	// Sudo returns the path of a static program that is sudo if it is called so; for trees
	// with Sudo in their manifest and no sudo of their own. nil: they get none.
	Sudo func(context.Context) (string, error)
}

const (
	defaultMax = 32 << 30
	staleParts = 24 * time.Hour // age after which partial downloads are removed

	treeName     = "root"     // in a template's directory: its tree
	manifestName = "manifest" // and the manifest; its modification time is the tree's last use
	partsName    = "parts"    // in Dir: downloaded parts, by template
	newPrefix    = "new-"     // prefix of directories that are being filled
	oldPrefix    = "old-"     // prefix of directories that are being removed
)

// Cache stores trees. Its methods may be called concurrently.
type Cache struct {
	cfg Config

	mu    sync.Mutex
	trees map[template.ID]*tree
}

// tree is a template's tree on this host.
type tree struct {
	id    template.ID
	size  int64
	used  time.Time     // time of the last use
	refs  int           // number of users
	ready chan struct{} // closed when it is filled, or the fill has failed
	err   error         // error of the fill; set before ready is closed
	m     template.Manifest
}

// Tree is a template in use; it stays until Release.
type Tree struct {
	Root     string            // absolute path
	Manifest template.Manifest // shared: must not be changed
	once     sync.Once
	c        *Cache
	t        *tree
}

// Open finds the trees that an earlier run stored, and removes incomplete ones.
func Open(cfg Config) (*Cache, error) {
	cfg.Max = cmp.Or(max(cfg.Max, 0), defaultMax)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	c := &Cache{cfg: cfg, trees: map[template.ID]*tree{}}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, partsName), 0o700); err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	for _, e := range entries {
		c.find(e.Name())
	}
	c.sweepParts(staleParts)
	return c, nil
}

// find adds the tree of a directory entry.
func (c *Cache) find(name string) {
	if strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, oldPrefix) {
		c.remove(filepath.Join(c.cfg.Dir, name))
		return
	}
	id, err := template.ParseID(name)
	if err != nil {
		return // not a template
	}
	file := filepath.Join(c.cfg.Dir, name, manifestName)
	raw, err := os.ReadFile(file)
	var m template.Manifest
	var got template.ID
	if err == nil {
		m, got, err = template.Decode(raw)
	}
	fi, statErr := os.Stat(file)
	if err != nil || statErr != nil || got != id {
		c.cfg.Log.Warn("read template directory failed, fetching it again", "template", name, "err", errors.Join(err, statErr))
		c.remove(filepath.Join(c.cfg.Dir, name))
		return
	}
	ready := make(chan struct{})
	close(ready)
	c.trees[id] = &tree{id: id, size: diskSize(&m), used: fi.ModTime(), ready: ready, m: m}
}

func (c *Cache) remove(dir string) {
	if err := rmtree.Tree(dir); err != nil {
		c.cfg.Log.Warn("remove template failed", "dir", dir, "err", err)
	}
}

// sweepParts removes parts that are not in use and at least as old as age.
func (c *Cache) sweepParts(age time.Duration) {
	entries, err := os.ReadDir(filepath.Join(c.cfg.Dir, partsName))
	if err != nil {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) >= age {
			c.dropParts(e.Name())
		}
	}
}

// dropParts makes a template's parts inaccessible, and removes them.
func (c *Cache) dropParts(name string) {
	old := filepath.Join(c.cfg.Dir, oldPrefix+partsName+"-"+name)
	c.mu.Lock()
	used := c.trees[template.ID(name)] != nil
	if !used {
		os.Rename(filepath.Join(c.cfg.Dir, partsName, name), old) //nolint:errcheck // it will be tried again
	}
	c.mu.Unlock()
	if !used {
		c.remove(old)
	}
}

// Have returns the ids of the stored templates.
func (c *Cache) Have() []template.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []template.ID
	for id, t := range c.trees {
		if t.done() && t.err == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (t *tree) done() bool {
	select {
	case <-t.ready:
		return true
	default:
		return false
	}
}

// Hold uses a stored template without fetching it: for sandboxes that an
// earlier run made. It returns false if it is not stored.
func (c *Cache) Hold(id template.ID) (*Tree, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trees[id]
	if t == nil || !t.done() || t.err != nil {
		return nil, false
	}
	return c.use(t), true
}

// use records a use; c.mu must be held.
func (c *Cache) use(t *tree) *Tree {
	t.refs++
	t.used = time.Now()
	os.Chtimes(filepath.Join(c.cfg.Dir, string(t.id), manifestName), t.used, t.used) //nolint:errcheck // it would only be evicted sooner
	return &Tree{Root: filepath.Join(c.cfg.Dir, string(t.id), treeName), Manifest: t.m, c: c, t: t}
}

// ID returns the template's id.
func (t *Tree) ID() template.ID { return t.t.id }

// Release ends the use of a template. It may be called more than once, and on nil.
func (t *Tree) Release() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.c.mu.Lock()
		defer t.c.mu.Unlock()
		t.t.refs--
	})
}

// Get returns the template of that manifest, and fetches it if it is not stored;
// concurrent calls share the work. It returns NotFound if its parts are not stored any
// more, Invalid if they are damaged or for another architecture, Exhausted if the disk is
// full.
func (c *Cache) Get(ctx context.Context, manifest []byte) (*Tree, error) {
	m, id, err := template.Decode(manifest)
	if err != nil {
		return nil, err
	}
	if m.Arch != runtime.GOARCH {
		return nil, kind.Newf(kind.Invalid, "get template", string(id), "the template is for %s, the host is %s", m.Arch, runtime.GOARCH)
	}
	for {
		t, mine := c.claim(id, &m)
		if mine {
			err := c.fill(ctx, id, &m, manifest)
			return c.settle(t, err), err
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if got, ok := c.Hold(id); ok {
			return got, nil
		}
		// The fill failed, or the tree was evicted since. The error may concern only
		// the other caller, such as an ended context.
		if t.err != nil && !errors.Is(t.err, context.Canceled) && !errors.Is(t.err, context.DeadlineExceeded) {
			return nil, t.err
		}
	}
}

// Adopt moves the directory dir, which is the tree of a manifest and beside the
// cache's, into the cache.
func (c *Cache) Adopt(dir string, manifest []byte) error {
	m, id, err := template.Decode(manifest)
	if err != nil {
		return err
	}
	t, mine := c.claim(id, &m)
	if !mine { // it is stored, or being fetched
		return rmtree.Tree(dir)
	}
	err = c.adopt(dir, id, manifest)
	c.settle(t, err).Release()
	c.evict(space{})
	return err
}

func (c *Cache) adopt(dir string, id template.ID, manifest []byte) error {
	if err := Sync(dir); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(c.cfg.Dir, newPrefix)
	if err != nil {
		return err
	}
	tree := filepath.Join(temp, treeName)
	err = os.WriteFile(filepath.Join(temp, manifestName), manifest, 0o600)
	if err == nil {
		err = os.Rename(dir, tree)
	}
	if err != nil {
		return errors.Join(err, rmtree.Tree(temp))
	}
	return os.Rename(temp, filepath.Join(c.cfg.Dir, string(id)))
}

// claim returns a template's tree, and whether the caller must fill it.
func (c *Cache) claim(id template.ID, m *template.Manifest) (t *tree, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t = c.trees[id]; t != nil {
		return t, false
	}
	t = &tree{id: id, size: diskSize(m), m: *m, used: time.Now(), ready: make(chan struct{})}
	c.trees[id] = t
	return t, true
}

// settle passes the result of a fill to those who wait, and marks it as used by the filler.
func (c *Cache) settle(t *tree, err error) (used *Tree) {
	c.mu.Lock()
	if t.err = err; err != nil {
		delete(c.trees, t.id)
	} else {
		used = c.use(t) // before eviction is considered
	}
	close(t.ready)
	c.mu.Unlock()
	c.evict(space{})
	return used
}

// evict removes unused trees, the longest unused first, until the rest fits
// and the disk has at least the space needed.
func (c *Cache) evict(need space) {
	for {
		dir, ok := c.victim(need)
		if !ok {
			return
		}
		c.remove(dir)
	}
}

// victim makes the tree to be removed inaccessible.
func (c *Cache) victim(need space) (dir string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var total int64
	var oldest *tree
	for _, t := range c.trees {
		if total += t.size; t.done() && t.refs == 0 && (oldest == nil || t.used.Before(oldest.used)) {
			oldest = t
		}
	}
	if oldest == nil || total <= c.cfg.Max && c.free().fits(need) {
		return "", false
	}
	return c.hide(oldest), true
}

// Shed frees disk space: it removes partial downloads that are not in progress, and the tree
// that was unused for longest. It returns false if all are in use.
func (c *Cache) Shed() bool {
	c.sweepParts(0)
	dir, ok := c.victim(space{bytes: math.MaxInt64})
	if ok {
		c.remove(dir)
	}
	return ok
}

// hide makes a tree inaccessible; c.mu must be held.
func (c *Cache) hide(t *tree) (dir string) {
	dir = filepath.Join(c.cfg.Dir, oldPrefix+string(t.id))
	err := os.Rename(filepath.Join(c.cfg.Dir, string(t.id)), dir)
	delete(c.trees, t.id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.cfg.Log.Warn("remove template failed", "template", t.id, "err", err)
	}
	return dir
}

// Drop removes a tree, unless it is in use.
func (c *Cache) Drop(id template.ID) {
	c.mu.Lock()
	t := c.trees[id]
	if t == nil || !t.done() || t.refs > 0 {
		c.mu.Unlock()
		return
	}
	dir := c.hide(t)
	c.mu.Unlock()
	c.remove(dir)
}

// Lacks reports whether a template is neither stored nor being fetched, and fits without
// removing others, with spare bytes of the disk left free.
func (c *Cache) Lacks(id template.ID, m *template.Manifest, spare int64) bool {
	c.mu.Lock()
	here, total := c.trees[id] != nil, diskSize(m)
	for _, t := range c.trees {
		total += t.size
	}
	c.mu.Unlock()
	need := needs(c.partsOf(id), m)
	need.bytes += spare
	return !here && total <= c.cfg.Max && c.free().fits(need)
}

// space is what a disk has, or must have.
type space struct {
	bytes int64
	files int64 // inodes
}

func (s space) fits(need space) bool { return need.bytes <= s.bytes && need.files <= s.files }

// free returns the space of the disk that the cache may fill.
func (c *Cache) free() space {
	var st unix.Statfs_t
	if err := unix.Statfs(c.cfg.Dir, &st); err != nil {
		return space{}
	}
	s := space{bytes: int64(st.Bavail) * int64(st.Bsize), files: int64(st.Ffree)}
	if st.Files == 0 {
		s.files = math.MaxInt64 // no limit on files
	}
	return s
}
