package hostd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/machine"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	snapshotDir     = "snapshots"
	partialSuffix   = ".partial" // suffix while the snapshot is made
	snapshotTimeout = 2 * time.Minute
)

// snapshotsDir returns the directory of all snapshots.
func (h *host) snapshotsDir() string { return filepath.Join(h.cfg.DataDir, snapshotDir) }

func (h *host) snapshotDir(id sandbox.SnapshotID) string { return snapshots.Path(h.snapshotsDir(), id) }

// newSnapshots returns the snapshots of the host. The view must be open.
func (h *host) newSnapshots() *snapshots.Store {
	return snapshots.New(snapshots.Config{
		Dir: h.snapshotsDir(), Host: h.cfg.Name, CopyAhead: h.cfg.CopyAhead, System: h.system, CPU: h.cpu,
		Log: h.log, View: h.view, Cache: h.templates, Drivers: h.drivers, Used: h.origins, Fault: h.fault, Go: h.spawn, Slog: h.slog,
	})
}

// ensureSnapshot makes the snapshot that the sandbox is based on available on this host and
// returns its directory; empty without a snapshot.
func (sb *hostSandbox) ensureSnapshot(ctx context.Context) (string, error) {
	if sb.req.From == "" {
		return "", nil
	}
	ctx, unwanted := sb.untilStop(ctx)
	defer unwanted()
	dir, tree, err := sb.h.snapshots.Ensure(ctx, sb.req.From, sb.offer)
	if tree != nil {
		sb.snapshotTree = tree
	}
	return dir, err
}

// holdSnapshot takes a reference to the copy that a sandbox of a previous run is based on.
func (sb *hostSandbox) holdSnapshot() {
	s, ok := sb.h.view.Snapshot(sb.req.From)
	if !ok {
		return
	}
	if _, own := sb.h.snapshots.Own(&s); own {
		return
	}
	sb.snapshotTree, _ = sb.h.snapshots.Hold(&s)
}

// snapshot handles a command to take a snapshot of the sandbox. The log has the snapshot only
// when it is complete; the remains of an interrupted one are removed by the next run.
func (sb *hostSandbox) snapshot(ctx context.Context, c events.Command, t events.TakeSnapshot) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	err := sb.capture(ctx, t)
	if ctx.Err() != nil && sb.h.runCtx.Err() != nil {
		return ctx.Err() // the next run retries while the client waits
	}
	if err != nil {
		sb.h.slog.Warn("take snapshot failed", "sandbox", sb.id, "err", err)
		sb.h.refuse(c, err)
		return nil
	}
	sb.h.cursor.End(c.Rev)
	sb.h.answer(c, events.Reply{})
	return nil
}

func (sb *hostSandbox) capture(ctx context.Context, t events.TakeSnapshot) error {
	sb.snapshotMu.Lock()
	defer sb.snapshotMu.Unlock()
	if s, ok := sb.h.view.Snapshot(t.ID); ok && s.Sandbox == sb.id {
		return nil // a previous run completed it
	}
	if !sb.adopted { // an adopted sandbox is past its creation
		select {
		case <-sb.ready: // then it is created, or has failed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if sb.instance() == nil || sb.ending() {
		return kind.New(kind.NotFound, "snapshot", string(sb.id), "the sandbox does not run here")
	}
	if err := sb.h.disk.Check("snapshot", string(sb.id)); err != nil {
		return err
	}
	if t.Memory {
		made, err := sb.reserveDisk(ctx)
		if err != nil {
			return err
		}
		defer made()
	} else if err := sb.awaitLink(ctx); err != nil {
		return err
	}
	dir := sb.h.snapshotDir(t.ID)
	if err := sb.writeSnapshot(ctx, dir, &t); err != nil {
		return err
	}
	err := sb.h.log.PutSnapshot(ctx, sb.describe(ctx, &t))
	if kind.Is(err, kind.Conflict) {
		return nil // the same command, read again
	}
	if err != nil {
		return errors.Join(err, rmtree.Tree(dir))
	}
	_, err = sb.h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Over() || !s.IsRunning() && !s.InPause() {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Snapshotted{Snapshot: t.ID, Memory: t.Memory}}, nil
	})
	return err
}

// describe returns the log's entry of a snapshot that was taken.
func (sb *hostSandbox) describe(ctx context.Context, t *events.TakeSnapshot) *sandbox.Snapshot {
	snap := &sandbox.Snapshot{
		ID: t.ID, Tenant: sb.tenant, Sandbox: sb.id, Host: sb.h.cfg.Name, Driver: sb.driver.Name(), Template: sb.req.Template,
		Name: t.Name, Memory: t.Memory, Internal: t.Internal, Layer: t.Layer, Taken: time.Now(),
		Isolation: sb.req.Isolation, CPUMilli: sb.req.CPUMilli, MemoryMiB: sb.req.MemoryMiB, DiskMiB: sb.req.DiskMiB, PIDs: sb.req.PIDs,
	}
	o := sb.offer(ctx)
	if built, ok := sb.instance().(driver.Versioned); ok && t.Memory {
		o.Caps.Fits = built.Fits()
	}
	snap.Fits = sb.h.snapshots.Fit(snap, &o)
	if !t.Internal {
		snap.Env, snap.User, snap.Workdir, snap.Start, snap.Ready = sb.req.Env, sb.req.User, sb.req.Workdir, sb.req.Start, sb.req.Ready
	}
	return snap
}

// awaitLink waits until a running sandbox's shim is connected: the previous snapshot may have cut
// the connection, which must be restored between the two.
func (sb *hostSandbox) awaitLink(ctx context.Context) error {
	for sb.link() == nil && !sb.suspended() && !sb.ending() {
		select {
		case <-sb.instance().Done():
			return nil // the driver returns the error
		default:
		}
		if !sleep(ctx, dialRetry) {
			return ctx.Err()
		}
	}
	return nil
}

// reserveDisk refuses a snapshot with memory for which the disk has no space: another sandbox
// would be evicted for it. Unused templates are removed first. Until the snapshot is made its
// size counts as used for concurrent ones.
func (sb *hostSandbox) reserveDisk(ctx context.Context) (made func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	has, err := sb.instance().Stats(ctx)
	if err != nil { // then the snapshot is tried
		has = driver.Stats{}
	}
	if all, free := machine.Memory(); all > 0 { // shared memory may be counted once per process
		has.MemoryBytes = min(has.MemoryBytes, all-free)
	}
	need := has.MemoryBytes + has.DiskBytes
	for !sb.h.disk.Reserve(need) {
		if !sb.h.templates.Shed() {
			return nil, kind.New(kind.Unavailable, "snapshot", string(sb.id), "the disk of the sandbox's host has no space for its memory")
		}
	}
	return func() { sb.h.disk.Release(need) }, nil
}

// writeSnapshot makes the snapshot's directory, complete or not at all. It is synced before the
// log has it, since the log's servers do not lose power with this host; except for a fork's, which is of
// no use without its sandboxes.
func (sb *hostSandbox) writeSnapshot(ctx context.Context, dir string, t *events.TakeSnapshot) error {
	making := dir + partialSuffix
	if err := rmtree.Tree(making); err != nil {
		return err
	}
	if err := os.MkdirAll(making, 0o700); err != nil {
		return err
	}
	err := sb.instance().Snapshot(ctx, making, t.Memory)
	if t.Memory && !sb.suspended() {
		sb.syncClock()
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = &kind.Error{Op: "snapshot", ID: string(sb.id), Kind: kind.Unavailable, Msg: "the disk of the sandbox's host is full", Err: err}
	}
	if err == nil && t.Memory && sb.ending() { // its shim may have received the end, and a copy of it would execute that
		err = kind.New(kind.NotFound, "snapshot", string(sb.id), "the sandbox ended during the snapshot")
	}
	if err == nil {
		if err = rmtree.Tree(dir); err == nil { // of an earlier attempt
			err = os.Rename(making, dir)
		}
	}
	if fork := t.Internal && t.Layer == ""; err == nil && !fork {
		err = templates.Sync(dir)
	}
	if err != nil {
		return errors.Join(err, rmtree.Tree(making), rmtree.Tree(dir))
	}
	return sb.h.fault("snapshotted")
}

// origins returns the snapshots that this host's sandboxes were created from.
func (h *host) origins() map[sandbox.SnapshotID]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	used := make(map[sandbox.SnapshotID]struct{})
	for _, sb := range h.sandboxes {
		used[sb.req.From] = struct{}{}
	}
	return used
}
