package proctable

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
)

const (
	headTimeout    = 3 * time.Second  // for the head of the snapshot: servers may be away, and lose the request
	restoreTimeout = 15 * time.Second // for all of it; after that the catalog is read from its beginning
	restoreReads   = 16               // at a time
)

// restored is a snapshot that was read.
type restored struct {
	head
	chunks []*finished.Chunk
	active []active // a process that has another entry since is missing: that entry follows
}

// active is the entry of an active process.
type active struct {
	sum process.Summary
	rev uint64
}

// Restore fills the empty table from the stored snapshot, and returns the stream sequence of the
// last message that is in it; 0: there is none. After an error the table is still empty.
func (t *Table) Restore(ctx context.Context) (upTo uint64, err error) {
	if t.snapshots == nil {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	short, stop := context.WithTimeout(ctx, headTimeout)
	defer stop()
	h, ok, err := t.head(short)
	if err != nil || !ok {
		return 0, err
	}
	r := restored{head: h, chunks: make([]*finished.Chunk, len(h.Chunks))}
	if err := t.read(ctx, &r); err != nil {
		t.saving.Lock()
		t.damaged = true
		t.saving.Unlock()
		return 0, err
	}
	t.progress.Lock()
	t.adopt(&r)
	t.progress.Unlock()
	t.saving.Lock()
	t.saved = h.Anchor.Seq
	t.saving.Unlock()
	return h.Anchor.Seq, nil
}

// read reads the parts of a snapshot, and the entries of the processes that were active.
func (t *Table) read(ctx context.Context, r *restored) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(restoreReads)
	for i, name := range r.Chunks {
		g.Go(func() error {
			data, err := t.snapshots.Get(ctx, name)
			if err != nil {
				return err
			}
			if got := finished.NameOf(data); got != name {
				return fmt.Errorf("part %s of a snapshot has the content of %s", name, got)
			}
			r.chunks[i], err = finished.DecodeChunk(data)
			return err
		})
	}
	entries := make([]*active, len(r.Active))
	for i, rev := range r.Active {
		g.Go(func() (err error) {
			entries[i], err = t.readActive(ctx, rev)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, e := range entries {
		if e != nil {
			r.active = append(r.active, *e)
		}
	}
	return nil
}

// readActive reads an entry of the catalog from the leader; nil: it was replaced.
func (t *Table) readActive(ctx context.Context, rev uint64) (*active, error) {
	m, ok, err := t.leader.LeaderGet(ctx, streams.Catalog, store.GetRequest{Seq: rev})
	if err != nil || !ok {
		return nil, err
	}
	s, err := codec.DecodeSummary(m.Data)
	return &active{s, rev}, err
}

// adopt fills the table. The view is locked.
func (t *Table) adopt(r *restored) {
	for _, c := range r.chunks {
		t.finished.Add(c)
	}
	w := &r.Totals
	t.totals.upTo, t.totals.rev, t.totals.dropped = w.UpTo, w.Rev, w.Dropped
	if w.Ended != nil {
		t.totals.ended = w.Ended
	}
	for i, rev := range w.SettledRevs {
		t.totals.settled = append(t.totals.settled, settlement{rev, w.SettledAs[i]})
	}
	t.finished.RemoveBefore(w.Dropped)
	for i := range r.active {
		t.replace(&r.active[i].sum, r.active[i].rev)
	}
}
