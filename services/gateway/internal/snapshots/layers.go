package snapshots

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// EnsureLayer makes a snapshot of a build's sandbox, unless the one with that id
// exists.
func (ss *Snapshots) EnsureLayer(ctx context.Context, p core.Principal, sbx sandbox.ID, take command.TakeSnapshot) error {
	if err := ss.core.Sync(ctx); err != nil {
		return err
	}
	if _, ok := ss.core.View.Snapshot(take.ID); ok {
		return nil
	}
	st, err := ss.lifecycle.FindSandbox(ctx, p, sbx)
	switch {
	case err != nil:
		return err
	case !st.IsRunning():
		return kind.New(kind.Unavailable, "snapshot", string(sbx), "the build's sandbox is gone: "+st.Cause)
	case !st.Can.Files:
		return kind.Newf(kind.Unimplemented, "snapshot", string(sbx), "driver %s cannot keep a sandbox's files: templates cannot be built with it", st.Driver)
	}
	// A command of its own: a reply to an earlier one may be lost.
	if _, err := ss.core.Call(ctx, &st, process.NewID(sbx), "snapshot."+ulid.Make().String(), take, snapshotTimeout); err != nil {
		return err
	}
	return ss.core.Sync(ctx)
}

// KeepLayer returns when a layer is in the store, from which every compatible host can
// load it even if the host that made it is lost. It returns Exhausted if the store is
// full, Unavailable if the host dies first, and NotFound for a dropped layer. A layer that
// no other host can use stays where it is.
func (ss *Snapshots) KeepLayer(ctx context.Context, id sandbox.SnapshotID) error {
	s, err := ss.core.View.ChangeSnapshot(ctx, id, func(s *sandbox.Snapshot) bool {
		if s.Fits == "" || s.Copy.Wanted || s.Copy.Manifest != "" {
			return false
		}
		s.Copy = sandbox.Copy{Wanted: true}
		return true
	})
	if err != nil && !kind.Is(err, kind.NotFound) {
		return core.LogError("store layer", string(id), err)
	}
	changed, stop := ss.core.View.Changes()
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for there := err == nil; ; s, there = ss.core.View.Snapshot(id) {
		switch {
		case !there || s.Deleted:
			return FilesGone("store layer", id)
		case s.Fits == "" || s.Copy.Manifest != "":
			return nil
		case s.Copy.Reason != "":
			return s.Copy.Err("store layer", string(id))
		case !ss.core.HostAlive(s.Host):
			return kind.Newf(kind.Unavailable, "store layer", string(id), "host %s died before the template's files were stored", s.Host)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// FilesGone returns the error for a template whose files were dropped.
func FilesGone(op string, id sandbox.SnapshotID) error {
	return kind.New(kind.NotFound, op, string(id), "the template's files no longer exist: build it again")
}

// Layer returns the newest usable snapshot of the tenant's builds with the given sum
// that is in the store or on a live host.
func (ss *Snapshots) Layer(p core.Principal, sum string, usable func(*sandbox.Snapshot) bool) (sandbox.Snapshot, bool) {
	for _, s := range ss.core.View.Snapshots(func(s *sandbox.Snapshot) bool { return s.Layer == sum && s.Tenant == p.Tenant && !s.Deleted }) {
		if ss.core.Reachable(&s) && usable(&s) {
			return s, true
		}
	}
	return sandbox.Snapshot{}, false
}

// LayerAmong is Layer limited to the given ids.
func (ss *Snapshots) LayerAmong(ids []string, sum string) (sandbox.Snapshot, bool) {
	for _, id := range ids {
		if s, ok := ss.LayerOf(sandbox.SnapshotID(id)); ok && s.Layer == sum && ss.core.Reachable(&s) {
			return s, true
		}
	}
	return sandbox.Snapshot{}, false
}

// LayerOf returns a snapshot by its id, unless it was dropped.
func (ss *Snapshots) LayerOf(id sandbox.SnapshotID) (sandbox.Snapshot, bool) {
	s, ok := ss.core.View.Snapshot(id)
	return s, ok && !s.Deleted
}

// ClaimLayer changes the record of a layer to which a template or a build has just been made to
// refer, so that a concurrent PruneLayers does not drop it. It returns NotFound if the layer
// was dropped before: layers are not kept for ever.
func (ss *Snapshots) ClaimLayer(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	if id == "" {
		return sandbox.Snapshot{}, nil
	}
	s, err := ss.core.View.ChangeSnapshot(ctx, id, func(*sandbox.Snapshot) bool { return true })
	if err == nil && s.Deleted || kind.Is(err, kind.NotFound) {
		return s, FilesGone("claim layer", id)
	}
	return s, core.LogError("claim layer", string(id), err)
}
