package snapshots

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// copyWait bounds the wait of a sandbox for a copy that another host makes.
const copyWait = 5 * time.Minute

// Config configures a Store. All fields are required.
type Config struct {
	Dir       string // directory of the snapshots that are made here
	Host      string // name of this host
	CopyAhead int64  // maximum bytes of a snapshot that is copied before it is requested; negative: none is
	System    string // identifies the host's own files
	CPU       string // the CPU's features

	Log     *events.Log
	View    *catalog.View
	Cache   *templates.Cache
	Drivers *drivers.Registry
	Used    func() map[sandbox.SnapshotID]struct{} // returns the snapshots that this host's sandboxes are based on
	Fault   func(point string) error               // interrupts the host in tests
	Go      func(what string, f func() error)      // runs a function in the background
	Slog    *slog.Logger
}

// Store has the snapshots of a host.
type Store struct {
	cfg Config
	mu  sync.Mutex // held while a snapshot's directory is resolved or handed out
}

// New returns a store.
func New(cfg Config) *Store { return &Store{cfg: cfg} }

// Path returns the directory of a snapshot in the directory of all snapshots.
func Path(dir string, id sandbox.SnapshotID) string { return filepath.Join(dir, string(id)) }

func (st *Store) dir(id sandbox.SnapshotID) string { return Path(st.cfg.Dir, id) }

// Fit returns the compatibility key of a driver here for a snapshot. A host can use the snapshot
// if this key equals that of the driver that made it.
func (st *Store) Fit(s *sandbox.Snapshot, o *drivers.Offer) string {
	l := fleet.Lease{Drivers: []string{o.Name()}, Fits: []string{o.Caps.Fits}, FileFits: []string{o.Caps.FileFits}, System: st.cfg.System, CPU: st.cfg.CPU}
	return l.Fit(o.Name(), fleet.Needs{System: template.IsHost(s.Template), CPU: s.Memory})
}

// CanUse reports whether any driver of this host can use a snapshot.
func (st *Store) CanUse(s *sandbox.Snapshot) bool {
	return s.Fits != "" && slices.ContainsFunc(st.cfg.Drivers.Offers(), func(o drivers.Offer) bool { return st.Fit(s, &o) == s.Fits })
}

// Own returns the directory of a snapshot that was made here, unless it is the cache's by
// now, as one with a copy in the store may be.
func (st *Store) Own(s *sandbox.Snapshot) (dir string, ok bool) {
	if s.Host != st.cfg.Host {
		return "", false
	}
	dir = st.dir(s.ID)
	_, err := os.Stat(dir)
	return dir, err == nil
}

// Ensure makes a snapshot available on this host and returns its directory, and the tree if that is
// the cache's. offer returns what the driver that will use it can do. Errors: NotFound for a
// deleted snapshot, Precondition for one that this host cannot use, Unavailable if no host stores a
// copy of it, and those of templates.Cache.Get.
func (st *Store) Ensure(ctx context.Context, id sandbox.SnapshotID, offer func(context.Context) drivers.Offer) (string, *templates.Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	for mended := false; ; {
		s, ok, err := st.find(ctx, id)
		if err != nil {
			return "", nil, err
		}
		if !ok || s.Deleted {
			return "", nil, kind.New(kind.NotFound, "create", string(id), "the snapshot does not exist any more")
		}
		o := offer(ctx)
		have := st.Fit(&s, &o)
		fits := s.Fits != "" && s.Fits == have
		st.mu.Lock() // serializes with giveToCache, which sees the sandbox
		dir, ok := st.Own(&s)
		st.mu.Unlock()
		if !fits && !(ok && s.Driver == o.Name()) {
			return "", nil, kind.Newf(kind.Precondition, "create", string(s.ID), "the snapshot was made on host %s by driver %s for %q, this host has %q", s.Host, s.Driver, s.Fits, have)
		}
		if ok {
			return dir, nil, nil
		}
		if s.Copy.Manifest == "" || s.Copy.Wanted {
			if err := st.askForCopy(ctx, &s); err != nil {
				return "", nil, err
			}
			continue
		}
		tree, err := st.cfg.Cache.Get(ctx, []byte(s.Copy.Manifest))
		if err == nil {
			return tree.Root, tree, nil
		}
		// A damaged or lost copy is replaced once, by a host that has the files.
		if mended || !kind.Is(err, kind.Invalid) && !kind.Is(err, kind.NotFound) {
			return "", nil, err
		}
		mended = true
		st.cfg.Slog.Warn("copy of a snapshot is damaged, requesting another", "snapshot", s.ID, "err", err)
		if err := st.doubt(ctx, &s); err != nil {
			return "", nil, err
		}
	}
}

// find returns a snapshot.
func (st *Store) find(ctx context.Context, id sandbox.SnapshotID) (s sandbox.Snapshot, ok bool, err error) {
	return catalog.Find(ctx, st.cfg.View, func() (sandbox.Snapshot, bool) { return st.cfg.View.Snapshot(id) })
}

// doubt requests a new copy of a snapshot in place of a damaged one.
func (st *Store) doubt(ctx context.Context, s *sandbox.Snapshot) error {
	_, err := st.cfg.View.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
		same := now.Copy.Manifest == s.Copy.Manifest && !now.Copy.Wanted
		now.Copy.Wanted = true
		return same
	})
	return err
}

// askForCopy waits until a host has stored a snapshot, or cannot.
func (st *Store) askForCopy(ctx context.Context, s *sandbox.Snapshot) error {
	asked, err := st.cfg.View.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
		if now.Copy.Wanted || now.Copy.Manifest != "" {
			return false
		}
		now.Copy = sandbox.Copy{Wanted: true}
		return true
	})
	if err != nil {
		return err
	}
	changed, stop := st.cfg.View.Changes()
	defer stop()
	for {
		now, ok := st.cfg.View.Snapshot(s.ID)
		switch {
		case !ok || now.Deleted || now.Rev >= asked.Rev && !now.Copy.Wanted:
			return now.Copy.Err("create", string(s.ID))
		case !st.availableElsewhere(&now):
			return kind.Newf(kind.Unavailable, "create", string(s.ID), "the snapshot is on host %s only, which does not answer", s.Host)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return kind.Newf(kind.Unavailable, "create", string(s.ID), "host %s did not copy the snapshot in time", s.Host)
		}
	}
}

// availableElsewhere reports whether another host that is alive has a snapshot's files.
func (st *Store) availableElsewhere(s *sandbox.Snapshot) bool {
	id := CopyID(&s.Copy)
	for _, other := range st.cfg.View.Hosts() {
		if !other.Alive(time.Now()) {
			continue
		}
		if other.Host == s.Host || slices.Contains(other.Templates, string(id)) {
			return true
		}
	}
	return false
}

// Hold takes a reference to the copy of a snapshot in the cache, if there is one.
func (st *Store) Hold(s *sandbox.Snapshot) (*templates.Tree, bool) {
	return st.cfg.Cache.Hold(CopyID(&s.Copy))
}

// CopyID returns the cache's name of a copy's tree; without a copy, the cache has no such tree.
func CopyID(c *sandbox.Copy) template.ID {
	return template.ID(template.SumOf([]byte(c.Manifest)))
}
