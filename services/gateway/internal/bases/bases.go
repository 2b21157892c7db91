package bases

import (
	"context"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Bases keeps and removes templates that others are based on. Its methods may be called concurrently.
type Bases struct {
	core   *core.Core
	builds *builds.Builds
}

// New returns Bases on c. It does no I/O.
func New(c *core.Core, bs *builds.Builds) *Bases {
	return &Bases{core: c, builds: bs}
}

// Untag removes a name of a template, and its parts if no template uses them any more. A base
// stays as a hidden template.
func (bs *Bases) Untag(ctx context.Context, t *catalog.Template) error {
	ref := template.Ref{Name: t.Name, Tag: t.Tag}
	if err := bs.KeepBase(ctx, t.Tenant, ref); err != nil {
		return err
	}
	if err := bs.core.Log.UntagTemplate(ctx, t.Tenant, ref); err != nil {
		return core.LogError("untag template", t.Name, err)
	}
	if err := bs.core.Sync(ctx); err != nil || t.Built != nil {
		return err
	}
	return bs.SweepParts(ctx, &t.Manifest)
}

// bases returns the templates that anything of any tenant is based on: a snapshot, for which
// other hosts need the template, a build's result, or a pending build.
func (bs *Bases) bases() map[string]bool {
	bases := map[string]bool{}
	for _, t := range bs.core.View.Templates("") {
		if t.Built != nil {
			bases[t.Built.Base] = true
		}
	}
	for _, s := range bs.core.View.Snapshots(func(s *sandbox.Snapshot) bool { return !s.Deleted }) {
		bases[s.Template] = true
	}
	for _, b := range bs.builds.PendingBuilds() {
		if b.Base != nil {
			bases[b.Base.Template] = true
		}
	}
	return bases
}

// PruneBases drops the hidden templates that are no longer a base.
func (bs *Bases) PruneBases(ctx context.Context) error {
	if err := bs.core.Sync(ctx); err != nil { // a build may have begun at another gateway
		return err
	}
	bases := bs.bases()
	for _, t := range bs.core.View.Templates("") {
		if template.Hidden(t.Name) && !bases[string(t.ID)] && len(bs.builds.PendingBuilds()) == 0 {
			if err := bs.Untag(ctx, &t); err != nil {
				return err
			}
		}
	}
	return nil
}

// KeepBase hides a base, so that it is kept, before a tenant's name is moved away from it.
func (bs *Bases) KeepBase(ctx context.Context, tenant string, ref template.Ref) error {
	if err := bs.core.Sync(ctx); err != nil {
		return err
	}
	t, ok := bs.core.View.Template(tenant, ref)
	if !ok || t.Built != nil || template.Hidden(t.Name) || !bs.bases()[string(t.ID)] {
		return nil
	}
	p, of := core.Principal{Tenant: tenant}, HiddenReason(t.ID)
	if _, ok := bs.HiddenTemplate(p, of); ok {
		return nil
	}
	raw, _, err := t.Manifest.Encode()
	if err != nil {
		return err
	}
	return bs.HideTemplate(ctx, p, of, raw)
}

// HiddenReason returns the reason under which HideTemplate keeps a template that also had names.
func HiddenReason(id template.ID) string { return "template " + string(id) }

// HideTemplate keeps a template, whose parts are stored, for as long as builds are based on it,
// even if it loses all of its names; of is the reason.
func (bs *Bases) HideTemplate(ctx context.Context, p core.Principal, of string, manifest []byte) error {
	if err := bs.core.Log.TagTemplate(ctx, p.Tenant, template.HiddenRef(of), manifest); err != nil {
		return core.LogError("keep template", "", err)
	}
	return bs.core.Sync(ctx)
}

// HiddenTemplate returns the template that HideTemplate kept.
func (bs *Bases) HiddenTemplate(p core.Principal, of string) (catalog.Template, bool) {
	return bs.core.View.Template(p.Tenant, template.HiddenRef(of))
}

// SweepParts removes those of a manifest's parts that no template uses.
func (bs *Bases) SweepParts(ctx context.Context, m *template.Manifest) error {
	used := map[template.Sum]bool{}
	for _, t := range bs.core.View.Templates("") {
		for _, sum := range t.Manifest.Parts {
			used[sum] = true
		}
	}
	for _, sum := range m.Parts {
		if used[sum] {
			continue
		}
		if err := bs.core.Log.RemovePart(ctx, sum); err != nil {
			return err
		}
	}
	return nil
}
