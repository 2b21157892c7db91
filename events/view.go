package events

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/fleet"
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
	*progress
	*processTable
	*accountTable
	*hookTable
	*lifecycleTable

	sandboxes map[sandbox.ID]sandbox.State
	swept     swept // of the sandboxes' records

	snapshots *table[sandbox.SnapshotID, sandbox.Snapshot]
	volumes   *table[string, sandbox.Volume] // by subject
	secrets   *table[string, Secret]         // likewise
	hosts     *table[string, fleet.Host]
	builds    *table[build.ID, Build]
	documents []documentTable // the tables above, except builds
}

// sweepEvery is how often old entries are dropped.
const sweepEvery = time.Minute

// newView returns a view without content.
func newView(l *Log) *View {
	p := newProgress(l)
	v := &View{
		progress:       p,
		processTable:   newProcessTable(p),
		accountTable:   newAccountTable(p),
		hookTable:      newHookTable(p),
		lifecycleTable: newLifecycleTable(p),
		sandboxes:      make(map[sandbox.ID]sandbox.State),
		snapshots:      newTable(p, snapshotDocs),
		volumes:        newTable(p, volumeDocs),
		secrets:        newTable(p, secretDocs),
		hosts:          newTable(p, hostDocs),
		builds:         newTable(p, buildDocs),
	}
	v.snapshots.inUse = v.baseSnapshots
	v.documents = []documentTable{v.snapshots, v.volumes, v.secrets, v.hosts}
	p.folds = []fold{
		{streams.Sandboxes, v.applySandbox, true},
		{streams.Catalogue, v.applySummary, false},
		{streams.Accounts, v.applyAccount, true},
		{streams.Builds, v.applyBuild, false},
		{streams.Hooks, v.applyHook, false},
	}
	for _, t := range v.documents {
		p.folds = append(p.folds, t.fold())
	}
	return v
}

// OpenView folds the log and returns when it has caught up. The view is kept up to date
// until ctx ends.
func (l *Log) OpenView(ctx context.Context) (*View, error) {
	v := newView(l)
	for _, f := range v.folds {
		feed, err := l.conn.Follow(f.stream, ">", 0)
		if err != nil {
			return nil, store.Unavailable("open view", f.stream, err)
		}
		go v.run(ctx, feed, f)
	}
	if err := v.Sync(ctx); err != nil {
		return v, err
	}
	go v.sweep(ctx) // only a complete view shows which snapshots are in use
	return v, nil
}

func (v *View) sweep(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			v.forget(time.Now().Add(-v.l.retention))
		}
	}
}

// forget drops what ended before the given time. Counts stay.
func (v *View) forget(before time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, s := range v.sandboxes {
		if s.Over() && s.Ended.Before(before) && v.members[id] == nil {
			delete(v.sandboxes, id)
		}
	}
	now := before.Add(v.l.retention)
	v.builds.expire(now) // their records are removed, too
	for _, t := range v.documents {
		t.expire(now)
	}
	v.hookTable.forget(now.Add(-deletedAge - viewAge))
	v.lifecycle.forget(now.Add(-LifecycleAge))
	v.processTable.forget(before)
}
