package hostd

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
	"github.com/millrace/millrace/services/hostd/internal/volumes"
)

// newDisk returns the guard of the host's disk.
func (h *host) newDisk() *disk.Guard {
	return disk.New(disk.Config{
		Volume: func(id sandbox.VolumeID) string { return volumes.Path(h.volumeDir(), id) },
		Path:   h.cfg.DataDir, Users: h.sandboxes.diskUsers, Shed: h.templates.cache.Shed, Go: h.wg.Go, Log: h.slog,
	})
}

// diskUsers returns the running sandboxes as users of the disk.
func (set *sandboxSet) diskUsers() []*disk.User {
	var all []*disk.User
	for _, sb := range set.measured() {
		all = append(all, sb.disk)
	}
	return all
}

// evictBeforeLease makes space on a full disk before a run has its lease: on a full disk no lease
// can be stored, and without one no sandbox be ended. Limits are not known yet. Templates in use
// are, unless the journal was damaged.
func (is *instanceStore) evictBeforeLease(ctx context.Context) error {
	if !is.h.disk.Short() {
		return nil
	}
	stored, err := is.h.journal.Sandboxes()
	if err != nil {
		return err
	}
	var users []*disk.User
	for id, was := range stored {
		d, err := is.h.drivers.Driver(was.Driver)
		if err != nil {
			continue // a driver of another system
		}
		if inst, err := d.Attach(ctx, is.spec(cmp.Or(was.Instance, id), &sandbox.Requested{})); err == nil {
			users = append(users, &disk.User{ID: id, Instance: func() driver.Instance { return inst }})
		}
	}
	is.evictedEarly = make(map[sandbox.ID]bool)
	defer is.h.wg.Wait() // an instance that is attached to is not removed at the same time
	held, known := is.holdNoted(stored)
	defer func() {
		for _, t := range held {
			t.Release()
		}
	}()
	for _, u := range is.h.disk.EvictUntilFree(ctx, users, known) {
		is.evictedEarly[u.ID] = true
	}
	return nil
}

// holdNoted takes references to the templates that sandboxes are based on, and reports whether
// those are known for all of them.
func (is *instanceStore) holdNoted(stored map[sandbox.ID]journal.Created) (held []*templates.Tree, known bool) {
	instances := make(map[string]bool)
	known = true
	for id, was := range stored {
		instances[string(cmp.Or(was.Instance, id))] = true
		known = known && was.Trees != nil
		for _, id := range was.Trees {
			if t, ok := is.h.templates.cache.Hold(id); ok {
				held = append(held, t)
			}
		}
	}
	there, err := os.ReadDir(is.root())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return held, false
	}
	for _, e := range there {
		known = known && instances[e.Name()] // a damaged journal may have had more
	}
	return held, known
}
