package core

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// maxTags is the maximum number of tags in one request.
const maxTags = 100

// ParseBuildName returns the name and the tags of a build: NAME or NAME:TAG, and more tags;
// without any, DefaultTag. It returns Invalid for anything else.
func ParseBuildName(name string, tags []string) (string, []string, error) {
	base, tag, tagged := strings.Cut(name, ":")
	if tagged {
		tags = append([]string{tag}, tags...)
	}
	if len(tags) == 0 {
		tags = []string{DefaultTag}
	}
	if len(tags) > maxTags {
		return "", nil, kind.Newf(kind.Invalid, "name template", "", "%d tags, the maximum is %d", len(tags), maxTags)
	}
	for _, tag := range tags {
		ref, err := template.ParseNew(base + ":" + tag)
		if err != nil {
			return "", nil, err
		}
		if template.IsBuiltID(ref.Name) {
			return "", nil, kind.Newf(kind.Invalid, "name template", "", "template name '%s' looks like an id", ref.Name)
		}
	}
	slices.Sort(tags)
	return base, slices.Compact(tags), nil
}

// TagBuilt tags a build's result. It returns NotFound if the template and its builds were
// deleted meanwhile, which a tag must not undo, or if the build's files were dropped.
func (c *Core) TagBuilt(ctx context.Context, p Principal, name string, tags []string, b *template.Built) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	files := sandbox.SnapshotID(b.Snapshot)
	if _, ok := c.LayerOf(files); files != "" && !ok {
		return filesGone("tag template", files) // the tags stay where they are
	}
	for _, tag := range tags {
		ref := template.Ref{Name: name, Tag: tag}
		if err := c.keepBase(ctx, p.Tenant, ref); err != nil {
			return err
		}
		if err := c.Log.TagBuilt(ctx, p.Tenant, ref, b); err != nil {
			return LogError("tag template", name, err)
		}
	}
	if err := c.Sync(ctx); err != nil {
		return err
	}
	_, err := c.ClaimLayer(ctx, files)
	// DeleteTemplate removes the tags that it finds after it has deleted the builds.
	if done, ok := c.View.Build(build.ID(b.Build)); ok && done.Phase == build.PhaseDeleted {
		err = kind.Newf(kind.NotFound, "tag template", "", "template '%s' was deleted", name)
	}
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	for _, tag := range tags {
		if t, ok := c.View.Template(p.Tenant, template.Ref{Name: name, Tag: tag}); ok && t.Built != nil && t.Built.Build == b.Build {
			if err := c.untag(ctx, &t); err != nil {
				return err
			}
		}
	}
	return err
}

// ClaimLayer changes the record of a layer to which a template or a build has just been made to
// refer, so that a concurrent PruneLayers does not drop it. It returns NotFound if the layer
// was dropped before: layers are not kept for ever.
func (c *Core) ClaimLayer(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	if id == "" {
		return sandbox.Snapshot{}, nil
	}
	s, err := c.View.ChangeSnapshot(ctx, id, func(*sandbox.Snapshot) bool { return true })
	if err == nil && s.Deleted || kind.Is(err, kind.NotFound) {
		return s, filesGone("claim layer", id)
	}
	return s, LogError("claim layer", string(id), err)
}

// AssignTags adds tags to a principal's own template, NAME or NAME:TAG. It returns NotFound
// for an unknown one.
func (c *Core) AssignTags(ctx context.Context, p Principal, name string, tags []string) (events.Template, error) {
	if len(tags) == 0 {
		return events.Template{}, kind.New(kind.Invalid, "tag template", "", "tags are required")
	}
	t, err := c.own(ctx, p, name)
	if err != nil {
		return t, err
	}
	if _, tags, err = ParseBuildName(t.Name, tags); err != nil {
		return t, err
	}
	if t.Built != nil {
		return t, c.TagBuilt(ctx, p, t.Name, tags, t.Built)
	}
	raw, _, err := t.Manifest.Encode()
	for i := 0; err == nil && i < len(tags); i++ {
		ref := template.Ref{Name: t.Name, Tag: tags[i]}
		if err = c.keepBase(ctx, p.Tenant, ref); err == nil {
			err = c.Log.TagTemplate(ctx, p.Tenant, ref, raw)
		}
	}
	if err != nil {
		return t, LogError("tag template", name, err)
	}
	return t, c.Sync(ctx)
}

// own returns a template of the principal's own tenant.
func (c *Core) own(ctx context.Context, p Principal, name string) (events.Template, error) {
	if p.Sandbox != "" {
		return events.Template{}, kind.New(kind.Denied, "find template", "", "a sandbox's token cannot change templates")
	}
	if err := c.Sync(ctx); err != nil {
		return events.Template{}, err
	}
	t, err := c.Template(ctx, p, name)
	if err == nil && t.Tenant != p.Tenant {
		err = noTemplate(name)
	}
	return t, err
}

// Tags returns the templates that share the name of a template, by tag.
func (c *Core) Tags(ctx context.Context, p Principal, name string) ([]events.Template, error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	own, mine := p.OwnedName(name)
	base, _, _ := strings.Cut(own, ":")
	var out []events.Template
	for _, t := range c.Templates(p) {
		if mine && (t.Name == base || string(t.ID) == base) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, noTemplate(name)
	}
	return out, nil
}

// RemoveTags removes tags from a principal's own template; missing tags are no error. It
// returns NotFound for an unknown template.
func (c *Core) RemoveTags(ctx context.Context, p Principal, name string, tags []string) error {
	if p.Sandbox != "" {
		return kind.New(kind.Denied, "untag template", "", "a sandbox's token cannot change templates")
	}
	if len(tags) == 0 || len(tags) > maxTags {
		return kind.Newf(kind.Invalid, "untag template", "", "want 1 to %d tags", maxTags)
	}
	all, err := c.Tags(ctx, p, name)
	if err != nil {
		return err
	}
	mine := 0
	for _, t := range all {
		if t.Tenant != p.Tenant {
			continue
		}
		mine++
		if slices.Contains(tags, t.Tag) {
			if err := c.untag(ctx, &t); err != nil {
				return err
			}
		}
	}
	if mine == 0 {
		return noTemplate(name)
	}
	return nil
}

// DeleteTemplate removes all tags of a principal's own template, and its builds. It returns
// NotFound for an unknown one.
func (c *Core) DeleteTemplate(ctx context.Context, p Principal, name string) error {
	name, err := c.OwnName(ctx, p, name)
	if err == nil {
		err = c.dropBuilds(ctx, p, name)
	}
	if _, said := c.View.Published(p.Tenant, name); err == nil && said {
		err = c.Log.PublishTemplate(ctx, p.Tenant, name, nil) // it must not apply to a later template of that name
	}
	if err != nil {
		return err
	}
	for _, other := range c.View.Templates(p.Tenant) {
		if other.Name != name {
			continue
		}
		if err := c.untag(ctx, &other); err != nil {
			return err
		}
	}
	return c.PruneLayers(ctx, p)
}

func (c *Core) untag(ctx context.Context, t *events.Template) error {
	ref := template.Ref{Name: t.Name, Tag: t.Tag}
	if err := c.keepBase(ctx, t.Tenant, ref); err != nil {
		return err
	}
	if err := c.Log.UntagTemplate(ctx, t.Tenant, ref); err != nil {
		return LogError("untag template", t.Name, err)
	}
	if err := c.Sync(ctx); err != nil || t.Built != nil {
		return err
	}
	return c.sweepParts(ctx, &t.Manifest)
}

// maxUnusedLayers is how many of a tenant's unused layers are kept: the newest, which later
// builds may reuse.
const maxUnusedLayers = 64

// PruneLayers drops the layers of a tenant's builds that are neither in use nor likely to be
// reused, and the bases that only they used.
func (c *Core) PruneLayers(ctx context.Context, p Principal) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	all := c.View.Snapshots(func(s *sandbox.Snapshot) bool { return s.Tenant == p.Tenant && s.Layer != "" && !s.Deleted })
	// Uses are collected after the layers: a layer that ClaimLayer changes later is not dropped,
	// and the use of one that it changed before is found.
	if err := c.Sync(ctx); err != nil {
		return err
	}
	used := c.TemplateSnapshots()
	for _, b := range c.PendingBuilds() {
		if b.Base != nil {
			used[sandbox.SnapshotID(b.Base.Snapshot)] = true
		}
		for _, id := range b.Mark.Layers {
			used[sandbox.SnapshotID(id)] = true
		}
	}
	spare := 0
	for _, s := range all {
		if !used[s.ID] {
			spare++
		}
		if used[s.ID] || spare <= maxUnusedLayers {
			continue
		}
		err := c.dropIf(ctx, s.ID, func(now *sandbox.Snapshot) bool { return now.Rev == s.Rev })
		if err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
	}
	return c.pruneBases(ctx)
}

// bases returns the templates that anything of any tenant is based on: a snapshot, for which
// other hosts need the template, a build's result, or a pending build.
func (c *Core) bases() map[string]bool {
	bases := map[string]bool{}
	for _, t := range c.View.Templates("") {
		if t.Built != nil {
			bases[t.Built.Base] = true
		}
	}
	for _, s := range c.View.Snapshots(func(s *sandbox.Snapshot) bool { return !s.Deleted }) {
		bases[s.Template] = true
	}
	for _, b := range c.PendingBuilds() {
		if b.Base != nil {
			bases[b.Base.Template] = true
		}
	}
	return bases
}

// pruneBases drops the hidden templates that are no longer a base.
func (c *Core) pruneBases(ctx context.Context) error {
	if err := c.Sync(ctx); err != nil { // a build may have begun at another gateway
		return err
	}
	bases := c.bases()
	for _, t := range c.View.Templates("") {
		if template.Hidden(t.Name) && !bases[string(t.ID)] && len(c.PendingBuilds()) == 0 {
			if err := c.untag(ctx, &t); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepBase hides a base, so that it is kept, before a tenant's name is moved away from it.
func (c *Core) keepBase(ctx context.Context, tenant string, ref template.Ref) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	t, ok := c.View.Template(tenant, ref)
	if !ok || t.Built != nil || template.Hidden(t.Name) || !c.bases()[string(t.ID)] {
		return nil
	}
	p, of := Principal{Tenant: tenant}, HiddenReason(t.ID)
	if _, ok := c.HiddenTemplate(p, of); ok {
		return nil
	}
	raw, _, err := t.Manifest.Encode()
	if err != nil {
		return err
	}
	return c.HideTemplate(ctx, p, of, raw)
}

// HiddenReason returns the reason under which HideTemplate keeps a template that also had names.
func HiddenReason(id template.ID) string { return "template " + string(id) }

// HideTemplate keeps a template, whose parts are stored, for as long as builds are based on it,
// even if it loses all of its names; of is the reason.
func (c *Core) HideTemplate(ctx context.Context, p Principal, of string, manifest []byte) error {
	if err := c.Log.TagTemplate(ctx, p.Tenant, template.HiddenRef(of), manifest); err != nil {
		return LogError("keep template", "", err)
	}
	return c.Sync(ctx)
}

// HiddenTemplate returns the template that HideTemplate kept.
func (c *Core) HiddenTemplate(p Principal, of string) (events.Template, bool) {
	return c.View.Template(p.Tenant, template.HiddenRef(of))
}
