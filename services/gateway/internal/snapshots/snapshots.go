package snapshots

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/bases"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
)

// Snapshots implements the operations on snapshots. Its methods may be called concurrently.
type Snapshots struct {
	core      *core.Core
	lifecycle *lifecycle.Lifecycle
	bases     *bases.Bases
}

// New returns Snapshots on c. It does no I/O.
func New(c *core.Core, l *lifecycle.Lifecycle, base *bases.Bases) *Snapshots {
	return &Snapshots{core: c, lifecycle: l, bases: base}
}

const snapshotTimeout = 2 * time.Minute // for making a snapshot

// CreateSnapshot makes a snapshot of a sandbox, under a name that may be empty, and returns
// when that is done; the sandbox continues. A name and tag belong to one snapshot: an earlier
// one with the same is deleted. If the driver supports it the snapshot contains processes, too,
// which Snapshot.Memory reports. It returns Unimplemented if the driver cannot make snapshots,
// and NotFound unless the sandbox runs or is paused.
func (ss *Snapshots) CreateSnapshot(ctx context.Context, p core.Principal, id sandbox.ID, name string) (sandbox.Snapshot, error) {
	s, err := ss.Take(ctx, p, id, command.TakeSnapshot{ID: sandbox.NewSnapshotID(), Name: name})
	if err == nil && name != "" {
		ss.replaceNamed(ctx, p, name)
	}
	return s, err
}

// replaceNamed deletes all snapshots with a name and tag but the newest. If it fails, the next
// snapshot with the name retries it.
func (ss *Snapshots) replaceNamed(ctx context.Context, p core.Principal, name string) {
	all := ss.named(p, name)
	for i := 1; i < len(all); i++ {
		if err := ss.Drop(ctx, all[i]); err != nil && !kind.Is(err, kind.NotFound) {
			ss.core.Slog.Warn("delete replaced snapshot failed", "snapshot", all[i].ID, "name", name, "err", err)
		}
	}
	if len(all) > 1 {
		if err := ss.bases.PruneBases(ctx); err != nil {
			ss.core.Slog.Warn("prune templates of snapshots failed", "name", name, "err", err)
		}
	}
}

// named returns a principal's snapshots with a name, newest first.
func (ss *Snapshots) named(p core.Principal, name string) []sandbox.Snapshot {
	return ss.List(p, func(s *sandbox.Snapshot) bool { return s.Name != "" && core.Tagged(s.Name) == core.Tagged(name) })
}

// Take makes a snapshot of a sandbox as CreateSnapshot does, but replaces no other.
func (ss *Snapshots) Take(ctx context.Context, p core.Principal, id sandbox.ID, take command.TakeSnapshot) (sandbox.Snapshot, error) {
	if p.Sandbox != "" {
		return sandbox.Snapshot{}, kind.New(kind.Denied, "snapshot", string(id), "a sandbox's token cannot make snapshots")
	}
	st, err := ss.lifecycle.FindSandbox(ctx, p, id)
	switch {
	case err != nil:
		return sandbox.Snapshot{}, err
	case !st.IsRunning() && !st.InPause():
		return sandbox.Snapshot{}, core.NoSandbox(id)
	case !st.Can.Files && !st.Can.Memory:
		return sandbox.Snapshot{}, kind.Newf(kind.Unimplemented, "snapshot", string(id), "driver %s cannot keep a sandbox's files here", st.Driver)
	}
	take.Memory = st.Can.Memory
	if _, err := ss.core.Call(ctx, &st, process.NewID(id), "snapshot."+string(take.ID), take, snapshotTimeout); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := ss.core.Sync(ctx); err != nil {
		return sandbox.Snapshot{}, err
	}
	s, ok := ss.core.View.Snapshot(take.ID)
	if !ok {
		return s, kind.New(kind.Internal, "snapshot", string(take.ID), "the snapshot was made but is not in the view")
	}
	return s, nil
}

// FindSnapshot returns the snapshot that a client refers to: by its id, with or without a tag
// after it, or the newest with the name. It returns NotFound also for another tenant's.
func (ss *Snapshots) FindSnapshot(ctx context.Context, p core.Principal, ref string) (sandbox.Snapshot, error) {
	none := kind.Newf(kind.NotFound, "find snapshot", "", "snapshot '%s' not found", ref)
	if err := ss.core.Sync(ctx); err != nil {
		return sandbox.Snapshot{}, err
	}
	ref, mine := p.OwnedName(ref)
	if !mine {
		return sandbox.Snapshot{}, none
	}
	base, _, _ := strings.Cut(ref, ":")
	if id, err := sandbox.ParseSnapshotID(base); err == nil {
		s, ok := ss.core.View.Snapshot(id)
		if ok && !s.Deleted && s.Tenant == p.Tenant {
			return s, nil
		}
		return sandbox.Snapshot{}, none
	}
	found := ss.named(p, ref)
	if len(found) == 0 {
		return sandbox.Snapshot{}, none
	}
	return found[0], nil
}

// SnapshotTags returns the principal's snapshots that share a name, by tag; or the one with
// a given snapshot id. It returns NotFound if there is no such snapshot.
func (ss *Snapshots) SnapshotTags(ctx context.Context, p core.Principal, ref string) ([]sandbox.Snapshot, error) {
	if err := ss.core.Sync(ctx); err != nil {
		return nil, err
	}
	own, mine := p.OwnedName(ref)
	base, _, _ := strings.Cut(own, ":")
	all := ss.List(p, func(s *sandbox.Snapshot) bool {
		name, _, _ := strings.Cut(s.Name, ":")
		return mine && base != "" && (name == base || string(s.ID) == base)
	})
	if len(all) == 0 {
		return nil, kind.Newf(kind.NotFound, "find snapshot", "", "snapshot '%s' not found", ref)
	}
	slices.SortFunc(all, func(a, b sandbox.Snapshot) int { return strings.Compare(core.Tagged(a.Name), core.Tagged(b.Name)) })
	return all, nil
}

// List returns the principal's snapshots for which keep returns true, newest first, as
// of the view.
func (ss *Snapshots) List(p core.Principal, keep func(*sandbox.Snapshot) bool) []sandbox.Snapshot {
	return ss.core.View.Snapshots(func(s *sandbox.Snapshot) bool {
		return s.Tenant == p.Tenant && p.Sandbox == "" && !s.Deleted && !s.Internal && keep(s)
	})
}

// DeleteSnapshot marks a snapshot as deleted and removes its copy from the store; hosts remove
// the snapshot once no sandbox uses it. It returns NotFound for an unknown one.
func (ss *Snapshots) DeleteSnapshot(ctx context.Context, p core.Principal, ref string) error {
	if p.Sandbox != "" {
		return kind.New(kind.Denied, "delete snapshot", "", "a sandbox's token cannot delete snapshots")
	}
	s, err := ss.FindSnapshot(ctx, p, ref)
	if err != nil {
		return err
	}
	if err := ss.Drop(ctx, s); err != nil {
		return err
	}
	if err := ss.bases.PruneBases(ctx); err != nil {
		ss.core.Slog.Warn("prune templates of snapshots failed", "snapshot", s.ID, "err", err)
	}
	return nil
}

// Drop marks a snapshot as deleted and removes its copy from the store.
func (ss *Snapshots) Drop(ctx context.Context, s sandbox.Snapshot) error {
	return ss.DropIf(ctx, s.ID, func(*sandbox.Snapshot) bool { return true })
}

// DropIf is Drop if may returns true for the current state of the snapshot.
func (ss *Snapshots) DropIf(ctx context.Context, id sandbox.SnapshotID, may func(now *sandbox.Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, ss.core.CallTimeout)
	defer cancel()
	now, err := ss.core.View.ChangeSnapshot(ctx, id, func(now *sandbox.Snapshot) bool {
		now.Deleted = may(now)
		return now.Deleted
	})
	if err != nil {
		return core.LogError("delete snapshot", string(id), err)
	}
	if !now.Deleted {
		return nil
	}
	if err := ss.core.View.DropCopy(ctx, &now.Copy); err != nil {
		ss.core.Slog.Warn("delete copy of snapshot failed, left to the reaper", "snapshot", id, "err", err)
	}
	return nil
}
