package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// maxAttaches is how many instances are attached to concurrently.
const maxAttaches = 16

// instanceStore creates, finds and removes instances.
type instanceStore struct {
	h *host

	shim         atomic.Pointer[[]string] // program and arguments of the next sandbox's shim
	builds       chan struct{}            // has a value for each instance that is being created
	evictedEarly map[sandbox.ID]bool      // evicted before there was a lease
}

// recover adopts the sandboxes of the previous run: it opens each sandbox of this host and
// removes it from stored, so that the rest is without an owner.
func (h *host) recover(ctx context.Context, stored map[sandbox.ID]journal.Created) error {
	if err := os.MkdirAll(h.instances.root(), 0o700); err != nil {
		return fmt.Errorf("sandboxes' directory: %w", err)
	}
	makers := sync.OnceValue(func() map[sandbox.ID]string { return h.instances.makers(ctx) })
	g, attaching := errgroup.WithContext(ctx) // done after Wait, while later work needs ctx
	g.SetLimit(maxAttaches)
	for _, s := range h.view.Sandboxes(h.sandboxes.mine) {
		was, known := stored[s.ID]
		delete(stored, s.ID)
		if !known { // it was never created, or the journal was lost
			was.Driver = makers()[s.ID]
		}
		g.Go(func() error {
			sb := newSandbox(h, &s)
			// The previous run may have died while it had the instance paused.
			sb.adopted, sb.pausing.paused = true, true
			sb.disk.Evicted.Store(h.instances.evictedEarly[s.ID])
			sb.session.Adopt()
			h.instances.find(attaching, sb, was)
			h.sandboxes.open(sb)
			return nil
		})
	}
	return g.Wait()
}

// makers returns the drivers of the existing instances, by the instances' names.
func (is *instanceStore) makers(ctx context.Context) map[sandbox.ID]string {
	all := map[sandbox.ID]string{}
	for _, name := range drivers.Names() {
		d, err := is.h.drivers.Driver(name)
		if err != nil {
			continue // a driver of another system
		}
		ids, err := d.List(ctx, is.root())
		if err != nil {
			is.h.slog.Error("list sandboxes failed", "driver", name, "err", err)
		}
		for _, id := range ids {
			all[id] = name
		}
	}
	return all
}

// find attaches a sandbox to its instance, if there is one; a missing one is not an error.
func (is *instanceStore) find(ctx context.Context, sb *hostSandbox, was journal.Created) {
	if was.Driver == "" {
		return // it was never created
	}
	if was.Instance != "" {
		sb.current.id = was.Instance
	}
	if !template.IsHost(sb.req.Template) && !sb.files.hold() {
		is.h.slog.Warn("template of a sandbox is missing", "sandbox", sb.id, "template", sb.req.Template)
	}
	sb.files.holdSnapshot()
	d, err := is.h.drivers.Driver(was.Driver)
	if err == nil {
		sb.driver = d
		sb.current.inst, err = d.Attach(ctx, is.spec(sb.current.id, &sb.req))
	}
	if err != nil {
		sb.current.inst = nil
		if !kind.Is(err, kind.NotFound) {
			is.h.slog.Error("attach to sandbox failed", "sandbox", sb.id, "err", err)
		}
	}
}

// clear destroys the remains of sandboxes that have ended or are not in the log, and removes
// directories without an instance.
func (is *instanceStore) clear(ctx context.Context, stored map[sandbox.ID]journal.Created) error {
	used := is.h.sandboxes.instancesInUse()
	for _, d := range is.h.drivers.Offers() {
		ids, err := d.List(ctx, is.root())
		if err != nil {
			is.h.slog.Error("list sandboxes failed", "driver", d.Name(), "err", err)
		}
		for _, id := range ids {
			if _, known := stored[id]; !known && !used[id] {
				stored[id] = journal.Created{Driver: d.Name()}
			}
		}
	}
	for id, was := range stored {
		instID := cmp.Or(was.Instance, id)
		if used[instID] {
			continue
		}
		if err := is.removeBy(ctx, was.Driver, instID); err != nil {
			is.h.slog.Error("remove leftover sandbox failed", "sandbox", id, "err", err)
			continue
		}
		if is.h.sandboxes.get(id) != nil {
			continue // the removed instance is the one that it had before a reboot
		}
		if err := is.h.journal.Forget(id); err != nil {
			return err
		}
	}
	left, err := os.ReadDir(is.root())
	for _, e := range left {
		if id := sandbox.ID(e.Name()); !used[id] {
			os.Remove(is.dir(id)) //nolint:errcheck // a directory that is not empty was logged
		}
	}
	return err
}

// clearTrials ends and removes the remains of driver probes that were killed.
func (is *instanceStore) clearTrials(ctx context.Context) {
	root := is.h.cfg.scratch()
	if left, err := os.ReadDir(root); err != nil || len(left) == 0 {
		return
	}
	for _, name := range drivers.Names() {
		d, err := is.h.drivers.Driver(name)
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
			is.h.slog.Error("remove remains of a driver probe failed", "driver", name, "err", err)
			return
		}
	}
	if err := os.RemoveAll(root); err != nil {
		is.h.slog.Error("remove remains of driver probes failed", "err", err)
	}
}

// instancesInUse returns the names of the sandboxes' instances.
func (set *sandboxSet) instancesInUse() map[sandbox.ID]bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	used := make(map[sandbox.ID]bool, len(set.byID))
	for _, sb := range set.byID {
		used[sb.current.name()] = true
	}
	return used
}

// removeBy is remove with the driver of that name.
func (is *instanceStore) removeBy(ctx context.Context, name string, id sandbox.ID) error {
	d, err := is.h.drivers.Driver(name)
	if err != nil {
		return err
	}
	return is.remove(ctx, d, id, nil)
}

// remove has a driver remove an instance. Without inst it attaches to what exists: a failed
// create may have left something that it could not remove in time.
func (is *instanceStore) remove(ctx context.Context, d driver.Driver, id sandbox.ID, inst driver.Instance) (err error) {
	if inst == nil {
		inst, err = d.Attach(ctx, is.spec(id, &sandbox.Requested{}))
	}
	if err == nil {
		err = inst.Destroy(ctx)
	}
	if err != nil && !kind.Is(err, kind.NotFound) {
		return err
	}
	return os.RemoveAll(is.dir(id))
}
