package instances

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// EvictBeforeLease makes space on a full disk before a run has its lease: on a full disk no lease
// can be stored, and without one no sandbox be ended. Limits are not known yet. Templates in use
// are, unless the journal was damaged.
func (st *Store) EvictBeforeLease(ctx context.Context) error {
	if !st.cfg.Disk.Short() {
		return nil
	}
	stored, err := st.cfg.Journal.Sandboxes()
	if err != nil {
		return err
	}
	var users []*disk.User
	for id, was := range stored {
		d, err := st.cfg.Drivers.Driver(was.Driver)
		if err != nil {
			continue // a driver of another system
		}
		if inst, err := d.Attach(ctx, st.Spec(cmp.Or(was.Instance, id), &sandbox.Requested{})); err == nil {
			users = append(users, &disk.User{ID: id, Instance: func() driver.Instance { return inst }})
		}
	}
	st.evicted = make(map[sandbox.ID]bool)
	defer st.cfg.Wait() // an instance that is attached to is not removed at the same time
	held, known := st.holdNoted(stored)
	defer func() {
		for _, t := range held {
			t.Release()
		}
	}()
	for _, u := range st.cfg.Disk.EvictUntilFree(ctx, users, known) {
		st.evicted[u.ID] = true
	}
	return nil
}

// Evicted reports whether EvictBeforeLease ended a sandbox.
func (st *Store) Evicted(id sandbox.ID) bool { return st.evicted[id] }

// holdNoted takes references to the templates that sandboxes are based on, and reports whether
// those are known for all of them.
func (st *Store) holdNoted(stored map[sandbox.ID]journal.Created) (held []*templates.Tree, known bool) {
	instances := make(map[string]bool)
	known = true
	for id, was := range stored {
		instances[string(cmp.Or(was.Instance, id))] = true
		known = known && was.Trees != nil
		for _, id := range was.Trees {
			if t, ok := st.cfg.Cache.Hold(id); ok {
				held = append(held, t)
			}
		}
	}
	there, err := os.ReadDir(st.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return held, false
	}
	for _, e := range there {
		known = known && instances[e.Name()] // a damaged journal may have had more
	}
	return held, known
}
