package hostd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/instances"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// maxAttaches is how many instances are attached to concurrently.
const maxAttaches = 16

// recover adopts the sandboxes of the previous run: it opens each sandbox of this host and
// removes it from stored, so that the rest is without an owner.
func (h *host) recover(ctx context.Context, stored map[sandbox.ID]journal.Created) error {
	if err := h.instances.MakeDir(); err != nil {
		return fmt.Errorf("sandboxes' directory: %w", err)
	}
	makers := sync.OnceValue(func() map[sandbox.ID]string { return h.instances.Makers(ctx) })
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
			sb.disk.Evicted.Store(h.instances.Evicted(s.ID))
			sb.session.Adopt()
			sb.find(attaching, was)
			h.sandboxes.open(sb)
			return nil
		})
	}
	return g.Wait()
}

// instancesInUse returns the names of the sandboxes' instances.
func (set *sandboxSet) instancesInUse() map[sandbox.ID]bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	used := make(map[sandbox.ID]bool, len(set.byID))
	for _, sb := range set.byID {
		used[sb.current.Name()] = true
	}
	return used
}

// find attaches the sandbox to its instance, if there is one; a missing one is not an error.
func (sb *hostSandbox) find(ctx context.Context, was journal.Created) {
	if was.Driver == "" {
		return // it was never created
	}
	if !template.IsHost(sb.req.Template) && !sb.files.hold() {
		sb.h.slog.Warn("template of a sandbox is missing", "sandbox", sb.id, "template", sb.req.Template)
	}
	sb.files.holdSnapshot()
	name := cmp.Or(was.Instance, sb.id)
	d, inst, err := sb.h.instances.Attach(ctx, was.Driver, name, &sb.req)
	if d != nil {
		sb.driver = d
	}
	sb.current.Set(name, inst)
	if err != nil && !kind.Is(err, kind.NotFound) {
		sb.h.slog.Error("attach to sandbox failed", "sandbox", sb.id, "err", err)
	}
}

// newInstances returns the instances of the host. Its drivers and its disk must be there.
func (h *host) newInstances() *instances.Store {
	return instances.New(instances.Config{
		Dir: filepath.Join(h.cfg.DataDir, sandboxDir), Scratch: h.cfg.scratch(), Shim: h.shim, Drivers: h.drivers,
		Journal: h.journal, Cache: h.cache, Disk: h.disk, Wait: h.wg.Wait, Slog: h.slog,
	})
}
