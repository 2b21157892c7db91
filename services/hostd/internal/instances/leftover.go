package instances

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// removals is the number of concurrent removals. A removal mostly waits for the kernel.
const removals = 8

// Makers returns the drivers of the existing instances, by the instances' names.
func (st *Store) Makers(ctx context.Context) map[sandbox.ID]string {
	all := map[sandbox.ID]string{}
	for _, name := range drivers.Names() {
		d, err := st.cfg.Drivers.Driver(name)
		if err != nil {
			continue // a driver of another system
		}
		ids, err := d.List(ctx, st.cfg.Dir)
		if err != nil {
			st.cfg.Slog.Error("list sandboxes failed", "driver", name, "err", err)
		}
		for _, id := range ids {
			all[id] = name
		}
	}
	return all
}

// Clear destroys the remains of sandboxes that have ended or are not in the log, and removes
// directories without an instance. stored are entries of the journal without a sandbox, used the names
// of the instances in use; isOpen reports whether a sandbox is open.
func (st *Store) Clear(ctx context.Context, stored map[sandbox.ID]journal.Created, used map[sandbox.ID]bool, isOpen func(sandbox.ID) bool) error {
	for _, d := range st.cfg.Drivers.Offers() {
		ids, err := d.List(ctx, st.cfg.Dir)
		if err != nil {
			st.cfg.Slog.Error("list sandboxes failed", "driver", d.Name(), "err", err)
		}
		for _, id := range ids {
			if _, known := stored[id]; !known && !used[id] {
				stored[id] = journal.Created{Driver: d.Name()}
			}
		}
	}
	var g errgroup.Group
	g.SetLimit(removals)
	for id, was := range stored {
		instID := cmp.Or(was.Instance, id)
		if used[instID] {
			continue
		}
		g.Go(func() error {
			if err := st.removeBy(ctx, was.Driver, instID); err != nil {
				st.cfg.Slog.Error("remove leftover sandbox failed", "sandbox", id, "err", err)
				return nil
			}
			if isOpen(id) {
				return nil // the removed instance is the one that it had before a reboot
			}
			return st.cfg.Journal.Forget(id)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	left, err := os.ReadDir(st.cfg.Dir)
	for _, e := range left {
		if id := sandbox.ID(e.Name()); !used[id] {
			os.Remove(st.Dir(id))
		}
	}
	return err
}

// ClearTrials ends and removes the remains of driver probes that were killed.
func (st *Store) ClearTrials(ctx context.Context) {
	root := st.cfg.Scratch
	if left, err := os.ReadDir(root); err != nil || len(left) == 0 {
		return
	}
	for _, name := range drivers.Names() {
		d, err := st.cfg.Drivers.Driver(name)
		if err != nil {
			continue // a driver of another system
		}
		ids, err := d.List(ctx, root)
		for _, id := range ids {
			in, lost := d.Attach(ctx, driver.Spec{ID: id, Dir: filepath.Join(root, string(id))})
			if lost == nil {
				lost = in.Destroy(ctx)
			}
			if !kind.Is(lost, kind.NotFound) {
				err = errors.Join(err, lost)
			}
		}
		if err != nil {
			st.cfg.Slog.Error("remove remains of a driver probe failed", "driver", name, "err", err)
			return
		}
	}
	if err := os.RemoveAll(root); err != nil {
		st.cfg.Slog.Error("remove remains of driver probes failed", "err", err)
	}
}
