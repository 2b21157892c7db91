package volumes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

const (
	volumeFiles = "files"         // in a volume's directory: the part that sandboxes see
	volumeMode  = 0o777           // for any user in a sandbox
	volumeUser  = 1000            // the owner, where owners are kept
	volumeRetry = 5 * time.Second // after an error

	maxListings = 4 // concurrent listings of many files, each up to 70 MB
	listTimeout = 10 * time.Second
)

// Config configures a Store. All fields are required.
type Config struct {
	Dir   string // directory of the volumes
	Host  string // name of this host
	Log   *events.Log
	View  *catalog.View
	InUse func(sandbox.VolumeID) bool // reports whether a sandbox of this host uses a volume
	Space func() error                // refuses writes while the disk is close to full
	Slog  *slog.Logger
}

// Store has the volumes of a host.
type Store struct {
	cfg      Config
	listings chan struct{} // has a value for each listing of many files
}

// New returns a store.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, listings: make(chan struct{}, maxListings)}
}

// Path returns the directory of a volume in the directory of all volumes, as sandboxes see it.
func Path(dir string, id sandbox.VolumeID) string { return filepath.Join(dir, string(id), volumeFiles) }

func (st *Store) path(id sandbox.VolumeID) string { return Path(st.cfg.Dir, id) }

// Run creates the volumes that this host must have and removes those that were deleted, until
// ctx ends. It removes only what the log has as deleted: a volume that the log lost may be the
// only copy of a user's data.
func (st *Store) Run(ctx context.Context) error {
	changed, stop := st.cfg.View.Changes()
	defer stop()
	for {
		var again <-chan time.Time
		for _, v := range st.cfg.View.Volumes(st.undone) {
			if err := st.reconcile(ctx, v); err != nil && ctx.Err() == nil {
				st.cfg.Slog.Error("reconcile volume failed", "volume", v.ID, "deleted", v.Deleted, "err", err)
				again = time.After(volumeRetry)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
		}
	}
}

// undone reports whether a volume is to be created, or was deleted and may have files here.
func (st *Store) undone(v *sandbox.Volume) bool {
	return v.Host == st.cfg.Host && v.Made == v.Deleted && (!v.Deleted || !st.cfg.InUse(v.ID))
}

// reconcile creates or removes a volume's files, then records that. If it is interrupted in
// between, it is repeated.
func (st *Store) reconcile(ctx context.Context, v sandbox.Volume) error {
	dir := st.path(v.ID)
	if v.Deleted {
		if err := rmtree.Tree(filepath.Dir(dir)); err != nil {
			return err
		}
	} else if err := makeVolume(dir); err != nil {
		return err
	}
	v.Made = !v.Deleted
	err := st.cfg.Log.PutVolume(ctx, &v)
	if kind.Is(err, kind.Conflict) { // the view will have the change
		return nil
	}
	return err
}

func makeVolume(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, volumeMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, volumeUser, volumeUser); err != nil {
			return err
		}
	}
	return os.Chmod(dir, volumeMode)
}

// open returns the directory of a volume that is here. An error of kind.Gone says that the
// directory is missing: it is never created again.
func (st *Store) open(ctx context.Context, id sandbox.VolumeID) (string, error) {
	v, made, err := catalog.Find(ctx, st.cfg.View, func() (sandbox.Volume, bool) {
		v, ok := st.cfg.View.Volume(id)
		return v, ok && v.Made
	})
	if err != nil {
		return "", err
	}
	if !made || v.Deleted || v.Host != st.cfg.Host {
		return "", kind.Newf(kind.NotFound, "open volume", string(id), "volume '%s' not found", id)
	}
	dir := st.path(id)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", &kind.Error{Op: "open volume", ID: string(id), Kind: kind.Gone,
			Msg: "the files of volume '" + v.Name + "' are not on their host " + v.Host + " any more", Err: err}
	}
	return dir, nil
}

// Mounts returns the volumes that a sandbox mounts.
func (st *Store) Mounts(ctx context.Context, req *sandbox.Requested) ([]driver.Volume, error) {
	var out []driver.Volume
	for _, m := range sandbox.ByDepth(req.Volumes) {
		dir, err := st.open(ctx, m.Volume)
		if err != nil {
			return nil, err
		}
		out = append(out, driver.Volume{Source: dir, Path: m.Path})
	}
	return out, nil
}

// Serve serves requests for a volume's files.
func (st *Store) Serve(ctx context.Context, s *mux.Stream, name string) {
	id, err := sandbox.ParseVolumeID(name)
	dir := ""
	if err == nil {
		dir, err = st.open(ctx, id)
	}
	var srv *files.Server
	if err == nil {
		srv, err = files.New(files.Config{Root: dir, Lookup: volumeAccount, Name: numbered, Times: true, DiskFree: st.cfg.Space, Turn: func() (func(), error) { return st.acquireListing(ctx) }})
	}
	if err != nil {
		s.Abort(err)
		return
	}
	defer srv.Close()
	srv.Serve(s)
}

// acquireListing bounds the concurrent listings of volumes, which take much memory.
func (st *Store) acquireListing(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	select {
	case st.listings <- struct{}{}:
		return func() { <-st.listings }, nil
	case <-ctx.Done():
		return nil, kind.New(kind.Unavailable, "list a volume", "", "the volume's host serves too many listings, try again")
	}
}

// volumeAccount returns the owner of new files of a volume, given as a numeric user and group.
func volumeAccount(user string) (files.Account, error) {
	uid, gid, err := file.ParseOwner(user)
	if uid == file.Keep {
		uid = volumeUser
	}
	if gid == file.Keep {
		gid = volumeUser
	}
	return files.Account{Home: "/", UID: uid, GID: gid}, err
}

func numbered(_ bool, id uint32) string { return strconv.FormatUint(uint64(id), 10) }
