package hostd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

const (
	volumeDir   = "volumes"
	volumeFiles = "files"         // in a volume's directory: the part that sandboxes see
	volumeMode  = 0o777           // for any user in a sandbox
	volumeUser  = 1000            // the owner, where owners are kept
	volumeRetry = 5 * time.Second // after an error

	maxListings = 4 // concurrent listings of many files, each up to 70 MB
	listTimeout = 10 * time.Second
)

// volumePath returns the directory of a volume as sandboxes see it.
func (h *host) volumePath(id sandbox.VolumeID) string {
	return filepath.Join(h.cfg.DataDir, volumeDir, string(id), volumeFiles)
}

// volumes creates the volumes that this host must have and removes those that were deleted, until
// ctx ends. It removes only what the log has as deleted: a volume that the log lost may be the
// only copy of a user's data.
func (h *host) volumes(ctx context.Context) error {
	changed, stop := h.view.Changes()
	defer stop()
	for {
		var again <-chan time.Time
		for _, v := range h.view.Volumes(h.undone) {
			if err := h.reconcileVolume(ctx, v); err != nil && ctx.Err() == nil {
				h.slog.Error("reconcile volume failed", "volume", v.ID, "deleted", v.Deleted, "err", err)
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
func (h *host) undone(v *sandbox.Volume) bool {
	return v.Host == h.cfg.Name && v.Made == v.Deleted && (!v.Deleted || !h.usesVolume(v.ID))
}

func (h *host) usesVolume(id sandbox.VolumeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sb := range h.sandboxes {
		for _, m := range sb.req.Volumes {
			if m.Volume == id {
				return true
			}
		}
	}
	return false
}

// reconcileVolume creates or removes a volume's files, then records that. If it is interrupted in
// between, it is repeated.
func (h *host) reconcileVolume(ctx context.Context, v sandbox.Volume) error {
	dir := h.volumePath(v.ID)
	if v.Deleted {
		if err := rmtree.Tree(filepath.Dir(dir)); err != nil {
			return err
		}
	} else if err := makeVolume(dir); err != nil {
		return err
	}
	v.Made = !v.Deleted
	err := h.log.PutVolume(ctx, &v)
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

// volume returns the directory of a volume that is here. An error of kind.Gone says that the
// directory is missing: it is never created again.
func (h *host) volume(id sandbox.VolumeID) (string, error) {
	v, ok := h.view.Volume(id)
	if !ok || v.Deleted || !v.Made || v.Host != h.cfg.Name {
		return "", kind.Newf(kind.NotFound, "open volume", string(id), "volume '%s' not found", id)
	}
	dir := h.volumePath(id)
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		return "", &kind.Error{Op: "open volume", ID: string(id), Kind: kind.Gone,
			Msg: "the files of volume '" + v.Name + "' are not on their host " + v.Host + " any more", Err: err}
	}
	return dir, nil
}

// mounts returns the volumes that a sandbox mounts.
func (h *host) mounts(req *sandbox.Requested) ([]driver.Volume, error) {
	var out []driver.Volume
	for _, m := range sandbox.ByDepth(req.Volumes) {
		dir, err := h.volume(m.Volume)
		if err != nil {
			return nil, err
		}
		out = append(out, driver.Volume{Source: dir, Path: m.Path})
	}
	return out, nil
}

// serveVolume serves requests for a volume's files.
func (h *host) serveVolume(s *mux.Stream, name string) {
	id, err := sandbox.ParseVolumeID(name)
	dir := ""
	if err == nil {
		dir, err = h.volume(id)
	}
	var srv *files.Server
	if err == nil {
		srv, err = files.New(files.Config{Root: dir, Lookup: volumeAccount, Name: numbered, Times: true, DiskFree: h.disk.CheckVolume, Turn: h.acquireListing})
	}
	if err != nil {
		s.Abort(err)
		return
	}
	defer srv.Close() //nolint:errcheck // it was only a directory
	srv.Serve(s)
}

// acquireListing bounds the concurrent listings of volumes, which take much memory.
func (h *host) acquireListing() (end func(), err error) {
	ctx, cancel := context.WithTimeout(h.runCtx, listTimeout)
	defer cancel()
	select {
	case h.listings <- struct{}{}:
		return func() { <-h.listings }, nil
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
