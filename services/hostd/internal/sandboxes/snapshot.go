package sandboxes

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/machine"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
	"github.com/millrace/millrace/services/hostd/internal/session"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	partialSuffix   = ".partial" // suffix while the snapshot is made
	snapshotTimeout = 2 * time.Minute
)

// snapshotter takes snapshots of a sandbox, one at a time.
type snapshotter struct {
	sb *hostSandbox

	mu sync.Mutex // held while a snapshot is made
}

// ensureSnapshot makes the snapshot that the sandbox is based on available on this host and
// returns its directory; empty without a snapshot.
func (fs *sandboxFiles) ensureSnapshot(ctx context.Context) (string, error) {
	if fs.sb.req.From == "" {
		return "", nil
	}
	ctx, unwanted := fs.sb.untilStop(ctx)
	defer unwanted()
	dir, tree, err := fs.sb.cfg.Snapshots.Ensure(ctx, fs.sb.req.From, fs.sb.offer)
	if tree != nil {
		fs.snapshotTree = tree
	}
	return dir, err
}

// holdSnapshot takes a reference to the copy that a sandbox of a previous run is based on.
func (fs *sandboxFiles) holdSnapshot() {
	s, ok := fs.sb.cfg.View.Snapshot(fs.sb.req.From)
	if !ok {
		return
	}
	if _, own := fs.sb.cfg.Snapshots.Own(&s); own {
		return
	}
	fs.snapshotTree, _ = fs.sb.cfg.Snapshots.Hold(&s)
}

// handle handles a command to take a snapshot of the sandbox. The log has the snapshot only
// when it is complete; the remains of an interrupted one are removed by the next run.
func (sn *snapshotter) handle(run context.Context, c command.Command, t command.TakeSnapshot) error {
	ctx, cancel := context.WithTimeout(run, snapshotTimeout)
	defer cancel()
	err := sn.capture(ctx, t)
	if ctx.Err() != nil && run.Err() != nil {
		return ctx.Err() // the next run retries while the client waits
	}
	if err != nil {
		sn.sb.cfg.Slog.Warn("take snapshot failed", "sandbox", sn.sb.id, "err", err)
		sn.sb.cfg.Commands.Refuse(c, err)
		return nil
	}
	sn.sb.cfg.Commands.End(c.Rev)
	sn.sb.cfg.Commands.Answer(c, command.Reply{})
	return nil
}

func (sn *snapshotter) capture(ctx context.Context, t command.TakeSnapshot) error {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	if taken, err := sn.taken(ctx, t.ID); taken || err != nil {
		return err
	}
	if !sn.sb.adopted { // an adopted sandbox is past its creation
		select {
		case <-sn.sb.session.Ready(): // then it is created, or has failed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if sn.sb.current.Instance() == nil || sn.sb.ending() {
		return kind.New(kind.NotFound, "snapshot", string(sn.sb.id), "the sandbox does not run here")
	}
	if err := sn.sb.cfg.Disk.Check("snapshot", string(sn.sb.id)); err != nil {
		return err
	}
	if t.Memory {
		made, err := sn.reserveDisk(ctx)
		if err != nil {
			return err
		}
		defer made()
	} else if err := sn.awaitLink(ctx); err != nil {
		return err
	}
	dir := sn.sb.cfg.snapshotDir(t.ID)
	if err := sn.write(ctx, dir, &t); err != nil {
		return err
	}
	snap, err := sn.describe(ctx, &t)
	if err == nil {
		err = sn.sb.cfg.Log.PutSnapshot(ctx, snap)
	}
	if kind.Is(err, kind.Conflict) {
		return nil // the same command, read again
	}
	if kind.Is(err, kind.Unavailable) {
		return err // if the log has the snapshot after all, its files must stay; otherwise the next run removes them
	}
	if err != nil {
		return errors.Join(err, rmtree.Tree(dir))
	}
	_, err = sn.sb.cfg.View.ChangeSandbox(ctx, sn.sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Over() || !s.IsRunning() && !s.InPause() {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Snapshotted{Snapshot: t.ID, Memory: t.Memory}}, nil
	})
	return err
}

// taken reports whether the log has a snapshot. A command that is read again must not replace its
// files: sandboxes may be based on them.
func (sn *snapshotter) taken(ctx context.Context, id sandbox.SnapshotID) (bool, error) {
	s, ok, err := catalog.Find(ctx, sn.sb.cfg.View, func() (sandbox.Snapshot, bool) { return sn.sb.cfg.View.Snapshot(id) })
	return ok && s.Sandbox == sn.sb.id, err
}

// describe returns the log's entry of a snapshot that was taken.
func (sn *snapshotter) describe(ctx context.Context, t *command.TakeSnapshot) (snap *sandbox.Snapshot, err error) {
	snap = &sandbox.Snapshot{
		ID: t.ID, Tenant: sn.sb.tenant, Sandbox: sn.sb.id, Host: sn.sb.cfg.Host, Driver: sn.sb.driver.Name(), Template: sn.sb.req.Template,
		Name: t.Name, Memory: t.Memory, Internal: t.Internal, Layer: t.Layer, Taken: time.Now(),
		Isolation: sn.sb.req.Isolation, Resources: sandbox.Resources{CPUMilli: sn.sb.req.CPUMilli, MemoryMiB: sn.sb.req.MemoryMiB, DiskMiB: sn.sb.req.DiskMiB, PIDs: sn.sb.req.PIDs},
	}
	o := sn.sb.offer(ctx)
	if built, ok := sn.sb.current.Instance().(driver.Versioned); ok && t.Memory {
		o.Caps.Fits = built.Fits()
	}
	snap.Fits = sn.sb.cfg.Snapshots.Fit(snap, &o)
	if !t.Internal {
		snap.Defaults, err = sn.sb.req.Defaults.Seal(sn.sb.cfg.Ring, snap.Tenant, string(snap.ID))
	}
	return snap, err
}

// awaitLink waits until a running sandbox's shim is connected: the previous snapshot may have cut
// the connection, which must be restored between the two.
func (sn *snapshotter) awaitLink(ctx context.Context) error {
	for sn.sb.session.Conn() == nil && !sn.sb.pausing.suspended() && !sn.sb.ending() {
		select {
		case <-sn.sb.current.Instance().Done():
			return nil // the driver returns the error
		default:
		}
		if !waiting.Sleep(ctx, session.DialRetry) {
			return ctx.Err()
		}
	}
	return nil
}

// reserveDisk refuses a snapshot with memory for which the disk has no space: another sandbox
// would be evicted for it. Unused templates are removed first. Until the snapshot is made its
// size counts as used for concurrent ones.
func (sn *snapshotter) reserveDisk(ctx context.Context) (made func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	has, err := sn.sb.current.Instance().Stats(ctx)
	if err != nil { // then the snapshot is tried
		has = driver.Stats{}
	}
	if all, free := machine.Memory(); all > 0 { // shared memory may be counted once per process
		has.MemoryBytes = min(has.MemoryBytes, all-free)
	}
	need := has.MemoryBytes + has.DiskBytes
	for !sn.sb.cfg.Disk.Reserve(need) {
		if !sn.sb.cfg.Cache.Shed() {
			return nil, kind.New(kind.Unavailable, "snapshot", string(sn.sb.id), "the disk of the sandbox's host has no space for its memory")
		}
	}
	return func() { sn.sb.cfg.Disk.Release(need) }, nil
}

// write makes the snapshot's directory, complete or not at all. It is synced before the
// log has it, since the log's servers do not lose power with this host; except for a fork's, which is of
// no use without its sandboxes.
func (sn *snapshotter) write(ctx context.Context, dir string, t *command.TakeSnapshot) error {
	making := dir + partialSuffix
	if err := rmtree.Tree(making); err != nil {
		return err
	}
	if err := os.MkdirAll(making, 0o700); err != nil {
		return err
	}
	err := sn.sb.current.Instance().Snapshot(ctx, making, t.Memory)
	if t.Memory && !sn.sb.pausing.suspended() {
		sn.sb.session.SyncClock()
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = &kind.Error{Op: "snapshot", ID: string(sn.sb.id), Kind: kind.Unavailable, Msg: "the disk of the sandbox's host is full", Err: err}
	}
	if err == nil && t.Memory && sn.sb.ending() { // its shim may have received the end, and a copy of it would execute that
		err = kind.New(kind.NotFound, "snapshot", string(sn.sb.id), "the sandbox ended during the snapshot")
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
	return sn.sb.cfg.Fault("snapshotted")
}

// Origins returns the snapshots that this host's sandboxes were created from.
func (set *Set) Origins() map[sandbox.SnapshotID]struct{} {
	set.mu.Lock()
	defer set.mu.Unlock()
	used := make(map[sandbox.SnapshotID]struct{})
	for _, sb := range set.byID {
		used[sb.req.From] = struct{}{}
	}
	return used
}

// snapshotDir returns the directory of a snapshot.
func (cfg *Config) snapshotDir(id sandbox.SnapshotID) string {
	return snapshots.Path(cfg.SnapshotsDir, id)
}
