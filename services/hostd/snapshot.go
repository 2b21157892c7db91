package hostd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/remove"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	snapshotDir     = "snapshots"
	partial         = ".partial" // suffix while the snapshot is made
	removed         = ".removed" // suffix while it is removed
	snapshotTimeout = 2 * time.Minute
)

func (h *host) snapshotDir(id sandbox.SnapshotID) string {
	return filepath.Join(h.cfg.DataDir, snapshotDir, string(id))
}

// snapshot handles a command to take a snapshot of the sandbox. The log has the snapshot only
// when it is complete; the remains of an interrupted one are removed by the next run.
func (b *box) snapshot(ctx context.Context, c events.Command, t events.TakeSnapshot) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	err := b.keep(ctx, t)
	if ctx.Err() != nil && b.h.life.Err() != nil {
		return ctx.Err() // the next run retries while the client waits
	}
	if err != nil {
		b.h.slog.Warn("take snapshot failed", "sandbox", b.id, "err", err)
		b.h.refuse(c, err)
		return nil
	}
	b.h.cursor.end(c.Rev)
	b.h.answer(c, events.Reply{})
	return nil
}

func (b *box) keep(ctx context.Context, t events.TakeSnapshot) error {
	b.keeping.Lock()
	defer b.keeping.Unlock()
	if s, ok := b.h.view.Snapshot(t.ID); ok && s.Sandbox == b.id {
		return nil // a previous run completed it
	}
	if !b.found { // an adopted sandbox is past its creation
		select {
		case <-b.ready: // then it is created, or has failed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if b.instance() == nil || b.ending() {
		return kind.New(kind.NotFound, "snapshot", string(b.id), "the sandbox does not run here")
	}
	if err := b.h.roomFor("snapshot", string(b.id)); err != nil {
		return err
	}
	if t.Memory {
		made, err := b.claimRoom(ctx)
		if err != nil {
			return err
		}
		defer made()
	} else if err := b.awaitLink(ctx); err != nil {
		return err
	}
	dir := b.h.snapshotDir(t.ID)
	if err := b.fill(ctx, dir, &t); err != nil {
		return err
	}
	err := b.h.log.PutSnapshot(ctx, b.picture(ctx, &t))
	if kind.Is(err, kind.Conflict) {
		return nil // the same command, read again
	}
	if err != nil {
		return errors.Join(err, remove.Tree(dir))
	}
	_, err = b.h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Over() || !s.Live() && !s.Standing() {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Snapshotted{Snapshot: t.ID, Memory: t.Memory}}, nil
	})
	return err
}

// describe returns the log's entry of a snapshot that was taken.
func (b *box) picture(ctx context.Context, t *events.TakeSnapshot) *sandbox.Snapshot {
	snap := &sandbox.Snapshot{
		ID: t.ID, Tenant: b.tenant, Sandbox: b.id, Host: b.h.cfg.Name, Driver: b.driver.Name(), Template: b.req.Template,
		Name: t.Name, Memory: t.Memory, Internal: t.Internal, Layer: t.Layer, Taken: time.Now(),
		Isolation: b.req.Isolation, CPUMilli: b.req.CPUMilli, MemoryMiB: b.req.MemoryMiB, DiskMiB: b.req.DiskMiB, PIDs: b.req.PIDs,
	}
	o := b.offer(ctx)
	if built, ok := b.instance().(driver.Built); ok && t.Memory {
		o.caps.Fits = built.Fits()
	}
	snap.Fits = b.h.fit(snap, &o)
	if !t.Internal {
		snap.Env, snap.User, snap.Workdir, snap.Start, snap.Ready = b.req.Env, b.req.User, b.req.Workdir, b.req.Start, b.req.Ready
	}
	return snap
}

// awaitLink waits until a running sandbox's shim is connected: the previous snapshot may have cut
// the connection, which must be restored between the two.
func (b *box) awaitLink(ctx context.Context) error {
	for b.link() == nil && !b.standing() && !b.ending() {
		select {
		case <-b.instance().Done():
			return nil // the driver returns the error
		default:
		}
		if !rest(ctx, dialPause) {
			return ctx.Err()
		}
	}
	return nil
}

// reserveDisk refuses a snapshot with memory for which the disk has no space: another sandbox
// would be evicted for it. Unused templates are removed first. Until the snapshot is made its
// size counts as used for concurrent ones.
func (b *box) claimRoom(ctx context.Context) (made func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	has, err := b.instance().Stats(ctx)
	if err != nil { // then the snapshot is tried
		has = driver.Stats{}
	}
	if all, free := memory(); all > 0 { // shared memory may be counted once per process
		has.MemoryBytes = min(has.MemoryBytes, all-free)
	}
	need := has.MemoryBytes + has.DiskBytes
	for !b.h.claim(need) {
		if !b.h.templates.Shed() {
			return nil, kind.New(kind.Unavailable, "snapshot", string(b.id), "the disk of the sandbox's host has no space for its memory")
		}
	}
	return func() {
		b.h.mu.Lock()
		defer b.h.mu.Unlock()
		b.h.claimed -= need
	}, nil
}

// reserve reports whether the disk has that much space besides the reserve and concurrent
// snapshots, and adds it to those.
func (h *host) claim(bytes uint64) bool {
	d := room(h.cfg.DataDir)
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.total > 0 && h.claimed+bytes+d.spare() > d.free {
		return false
	}
	h.claimed += bytes
	return true
}

// fill makes the snapshot's directory, complete or not at all. It is synced before the log has
// it, since the log's servers do not lose power with this host; except for a fork's, which is of
// no use without its sandboxes.
func (b *box) fill(ctx context.Context, dir string, t *events.TakeSnapshot) error {
	making := dir + partial
	if err := remove.Tree(making); err != nil {
		return err
	}
	if err := os.MkdirAll(making, 0o700); err != nil {
		return err
	}
	err := b.instance().Snapshot(ctx, making, t.Memory)
	if t.Memory && !b.standing() {
		b.catchUp()
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = &kind.Error{Op: "snapshot", ID: string(b.id), Kind: kind.Unavailable, Msg: "the disk of the sandbox's host is full", Err: err}
	}
	if err == nil && t.Memory && b.ending() { // its shim may have received the end, and a copy of it would execute that
		err = kind.New(kind.NotFound, "snapshot", string(b.id), "the sandbox ended during the snapshot")
	}
	if err == nil {
		if err = remove.Tree(dir); err == nil { // of an earlier attempt
			err = os.Rename(making, dir)
		}
	}
	if fork := t.Internal && t.Layer == ""; err == nil && !fork {
		err = templates.Sync(dir)
	}
	if err != nil {
		return errors.Join(err, remove.Tree(making), remove.Tree(dir))
	}
	return b.h.fault("snapshotted")
}

// sweepSnapshots removes the snapshots that were deleted or never reached the log, except those
// that a sandbox is based on. It must not run concurrently with snapshot unless deleted is set,
// which leaves out the latter kind.
func (h *host) sweepSnapshots(deleted bool) {
	entries, err := os.ReadDir(filepath.Join(h.cfg.DataDir, snapshotDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.slog.Error("list snapshots failed", "err", err)
	}
	used := h.origins()
	for _, e := range entries {
		id := sandbox.SnapshotID(e.Name())
		s, ok := h.view.Snapshot(id)
		if _, stands := used[id]; stands || ok && !s.Deleted || deleted && !ok {
			continue
		}
		if err := h.removeSnapshot(id); err != nil {
			h.slog.Error("remove snapshot failed", "snapshot", id, "err", err)
		}
	}
	h.sweepCopies()
}

// removeSnapshot renames a snapshot's directory and removes it in the background: it may have
// many files.
func (h *host) removeSnapshot(id sandbox.SnapshotID) error {
	going := h.snapshotDir(id) + removed
	if err := os.Rename(h.snapshotDir(id), going); err != nil {
		return err
	}
	h.spawn("remove snapshot "+string(id), func() error { return remove.Tree(going) })
	return nil
}

// sweepCopies drops the copies of deleted snapshots that no sandbox is based on.
func (h *host) sweepCopies() {
	live := make(map[string]bool)
	gone := h.view.Snapshots(func(s *sandbox.Snapshot) bool {
		if !s.Deleted {
			live[s.Copy.Manifest] = true
		}
		return s.Deleted && s.Copy.Manifest != ""
	})
	for _, s := range gone {
		if id := copyID(&s.Copy); !live[s.Copy.Manifest] {
			h.spawn("remove copy "+string(id), func() error { h.templates.Drop(id); return nil })
		}
	}
}

// origins returns the snapshots that this host's sandboxes were created from.
func (h *host) origins() map[sandbox.SnapshotID]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	used := make(map[sandbox.SnapshotID]struct{})
	for _, b := range h.boxes {
		used[b.req.From] = struct{}{}
	}
	return used
}
