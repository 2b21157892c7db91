package catalog

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/blob"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/proctable"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/sandbox"
)

// View is the log's sandboxes, processes, hosts and keys, folded into memory and kept up to
// date. Its methods may be called concurrently. Ended sandboxes and processes are kept as
// long as output is.
//
// It consists of parts, each with its state and its methods. They share one lock, because
// some read each other's state.
type View struct {
	processTable
	*accountTable
	*hookTable
	*lifecycleTable

	progress  *fold.Progress
	conn      *store.Conn
	write     *Documents
	blobs     *blob.Store
	retention time.Duration // of ended sandboxes and processes

	sandboxes map[sandbox.ID]sandbox.State
	swept     fold.Swept // of the sandboxes' records

	snapshots *fold.Table[sandbox.SnapshotID, sandbox.Snapshot]
	volumes   *fold.Table[string, sandbox.Volume] // by subject
	secrets   *fold.Table[string, Secret]         // likewise
	hosts     *fold.Table[string, fleet.Host]
	builds    *fold.Table[build.ID, Build]
	documents []fold.Source // the tables above, except builds
}

// sweepEvery is how often old entries are dropped.
const sweepEvery = time.Minute

// newView returns a view without content.
func newView(conn *store.Conn, blobs *blob.Store, retention time.Duration) *View {
	p := fold.NewProgress(conn)
	d := NewDocuments(conn)
	v := &View{
		progress:       p,
		conn:           conn,
		write:          d,
		blobs:          blobs,
		retention:      retention,
		processTable:   processTable{proctable.New(conn, p, retention, blobs.Views())},
		accountTable:   newAccountTable(p),
		hookTable:      newHookTable(p),
		lifecycleTable: newLifecycleTable(conn, p),
		sandboxes:      make(map[sandbox.ID]sandbox.State),
		snapshots:      fold.NewTable(p, snapshotDocs),
		volumes:        fold.NewTable(p, volumeDocs),
		secrets:        fold.NewTable(p, secretDocs),
		hosts:          fold.NewTable(p, hostDocs),
		builds:         fold.NewTable(p, buildDocs),
	}
	v.snapshots.InUse = v.baseSnapshots
	v.documents = []fold.Source{v.snapshots.Source(), v.volumes.Source(), v.secrets.Source(), v.hosts.Source()}
	return v
}

// sources returns the streams from which the view is folded.
func (v *View) sources() []fold.Source {
	return append([]fold.Source{
		{Stream: streams.Sandboxes, Apply: v.applySandbox, Notify: true},
		{Stream: streams.Catalog, Apply: v.table.Apply, Restore: v.table.Restore},
		{Stream: streams.Accounts, Apply: v.applyAccount, Notify: true},
		{Stream: streams.Builds, Apply: v.applyBuild},
		{Stream: streams.Hooks, Apply: v.applyHook},
	}, v.documents...)
}

// OpenView folds the log and returns when it has caught up. The view is kept up to date
// until ctx ends, and keeps ended sandboxes and processes for the retention.
func OpenView(ctx context.Context, conn *store.Conn, blobs *blob.Store, retention time.Duration) (*View, error) {
	v := newView(conn, blobs, retention)
	if err := v.progress.Start(ctx, v.sources()); err != nil {
		return nil, err
	}
	if err := v.Sync(ctx); err != nil {
		return v, err
	}
	go v.sweep(ctx) // only a complete view shows which snapshots are in use
	return v, nil
}

// Sync waits until everything stored before the call is in the view. It retries through
// outages until ctx ends. It returns ctx's error, or kind.Unavailable if the log was closed
// or could not be reached until then.
func (v *View) Sync(ctx context.Context) error { return v.progress.Sync(ctx) }

// SyncProcesses is [View.Sync] for the sandboxes and processes of a view alone: it asks the leaders
// of their streams and no others.
func SyncProcesses(ctx context.Context, v *View) error {
	return v.progress.Sync(ctx, streams.Sandboxes, streams.Catalog)
}

// Changes returns a channel that receives a value after each change except of processes,
// which change a hundred times as often and need no reaction. It buffers one value: a slow
// receiver sees one for many changes. Call stop to end it.
func (v *View) Changes() (changed <-chan struct{}, stop func()) { return v.progress.Changes() }

// SandboxesRev returns the stream sequence up to which the view has folded all sandboxes'
// records. Later reads from the view are at least as new.
func (v *View) SandboxesRev() uint64 { return v.progress.Rev(streams.Sandboxes) }

func (v *View) sweep(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			v.forget(time.Now().Add(-v.retention))
		}
	}
}

// namesLive reports whether a sandbox gives its name to one that has not ended. The view is locked.
func namesLive(v *View, s *sandbox.State) bool {
	named, ok := v.sandboxes[s.Request.Names()]
	return ok && !named.Over()
}

// forget drops what ended before the given time. Counts stay.
func (v *View) forget(before time.Time) {
	v.progress.Lock()
	defer v.progress.Unlock()
	for id, s := range v.sandboxes {
		if s.Over() && s.Ended.Before(before) && !v.table.Has(id) && !namesLive(v, &s) {
			delete(v.sandboxes, id)
		}
	}
	now := before.Add(v.retention)
	v.builds.Expire(now) // their records are removed, too
	for _, t := range v.documents {
		t.Expire(now)
	}
	v.hookTable.forget(now.Add(-deletedAge - viewAge))
	v.lifecycle.forget(now.Add(-LifecycleAge))
	v.table.Forget(before)
}
