package sandboxes

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// maxAttaches is how many instances are attached to concurrently.
const maxAttaches = 16

// Recover adopts the sandboxes of the previous run: it opens each sandbox of this host and
// removes it from stored, so that the rest is without an owner.
func (set *Set) Recover(ctx context.Context, stored map[sandbox.ID]journal.Created) error {
	if err := set.cfg.Instances.MakeDir(); err != nil {
		return fmt.Errorf("sandboxes' directory: %w", err)
	}
	makers := sync.OnceValue(func() map[sandbox.ID]string { return set.cfg.Instances.Makers(ctx) })
	g, attaching := errgroup.WithContext(ctx) // done after Wait, while later work needs ctx
	g.SetLimit(maxAttaches)
	for _, s := range set.cfg.View.Sandboxes(set.mine) {
		was, known := stored[s.ID]
		delete(stored, s.ID)
		if !known { // it was never created, or the journal was lost
			was.Driver = makers()[s.ID]
		}
		g.Go(func() error {
			sb := set.newSandbox(&s)
			// The previous run may have died while it had the instance paused.
			sb.adopted, sb.pausing.paused = true, true
			sb.disk.Evicted.Store(set.cfg.Instances.Evicted(s.ID))
			sb.session.Adopt()
			sb.find(attaching, was)
			set.open(sb)
			return nil
		})
	}
	return g.Wait()
}

// InstancesInUse returns the names of the sandboxes' instances.
func (set *Set) InstancesInUse() map[sandbox.ID]bool {
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
		sb.cfg.Slog.Warn("template of a sandbox is missing", "sandbox", sb.id, "template", sb.req.Template)
	}
	sb.files.holdSnapshot()
	name := cmp.Or(was.Instance, sb.id)
	d, inst, err := sb.cfg.Instances.Attach(ctx, was.Driver, name, &sb.req)
	if d != nil {
		sb.driver = d
	}
	sb.current.Set(name, inst)
	if err != nil && !kind.Is(err, kind.NotFound) {
		sb.cfg.Slog.Error("attach to sandbox failed", "sandbox", sb.id, "err", err)
	}
}
