package templatestore

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
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
		tags = []string{core.DefaultTag}
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
func (ts *Store) TagBuilt(ctx context.Context, p core.Principal, name string, tags []string, b *template.Built) error {
	if err := ts.core.Sync(ctx); err != nil {
		return err
	}
	files := sandbox.SnapshotID(b.Snapshot)
	if _, ok := ts.snapshots.LayerOf(files); files != "" && !ok {
		return snapshots.FilesGone("tag template", files) // the tags stay where they are
	}
	for _, tag := range tags {
		ref := template.Ref{Name: name, Tag: tag}
		if err := ts.bases.KeepBase(ctx, p.Tenant, ref); err != nil {
			return err
		}
		if err := ts.core.Log.TagBuilt(ctx, p.Tenant, ref, b); err != nil {
			return core.LogError("tag template", name, err)
		}
	}
	if err := ts.core.Sync(ctx); err != nil {
		return err
	}
	_, err := ts.snapshots.ClaimLayer(ctx, files)
	// DeleteTemplate removes the tags that it finds after it has deleted the builds.
	if done, ok := ts.core.View.Build(build.ID(b.Build)); ok && done.Phase == build.PhaseDeleted {
		err = kind.Newf(kind.NotFound, "tag template", "", "template '%s' was deleted", name)
	}
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	for _, tag := range tags {
		if t, ok := ts.core.View.Template(p.Tenant, template.Ref{Name: name, Tag: tag}); ok && t.Built != nil && t.Built.Build == b.Build {
			if err := ts.bases.Untag(ctx, &t); err != nil {
				return err
			}
		}
	}
	return err
}

// AssignTags adds tags to a principal's own template, NAME or NAME:TAG. It returns NotFound
// for an unknown one.
func (ts *Store) AssignTags(ctx context.Context, p core.Principal, name string, tags []string) (catalog.Template, error) {
	if len(tags) == 0 {
		return catalog.Template{}, kind.New(kind.Invalid, "tag template", "", "tags are required")
	}
	t, err := ts.own(ctx, p, name)
	if err != nil {
		return t, err
	}
	if _, tags, err = ParseBuildName(t.Name, tags); err != nil {
		return t, err
	}
	if t.Built != nil {
		return t, ts.TagBuilt(ctx, p, t.Name, tags, t.Built)
	}
	raw, _, err := t.Manifest.Encode()
	for i := 0; err == nil && i < len(tags); i++ {
		ref := template.Ref{Name: t.Name, Tag: tags[i]}
		if err = ts.bases.KeepBase(ctx, p.Tenant, ref); err == nil {
			err = ts.core.Log.TagTemplate(ctx, p.Tenant, ref, raw)
		}
	}
	if err != nil {
		return t, core.LogError("tag template", name, err)
	}
	return t, ts.core.Sync(ctx)
}

// own returns a template of the principal's own tenant.
func (ts *Store) own(ctx context.Context, p core.Principal, name string) (catalog.Template, error) {
	if p.Sandbox != "" {
		return catalog.Template{}, kind.New(kind.Denied, "find template", "", "a sandbox's token cannot change templates")
	}
	if err := ts.core.Sync(ctx); err != nil {
		return catalog.Template{}, err
	}
	t, err := ts.Template(ctx, p, name)
	if err == nil && t.Tenant != p.Tenant {
		err = noTemplate(name)
	}
	return t, err
}

// Tags returns the templates that share the name of a template, by tag.
func (ts *Store) Tags(ctx context.Context, p core.Principal, name string) ([]catalog.Template, error) {
	if err := ts.core.Sync(ctx); err != nil {
		return nil, err
	}
	own, mine := p.OwnedName(name)
	base, _, _ := strings.Cut(own, ":")
	var out []catalog.Template
	for _, t := range ts.List(p) {
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
func (ts *Store) RemoveTags(ctx context.Context, p core.Principal, name string, tags []string) error {
	if p.Sandbox != "" {
		return kind.New(kind.Denied, "untag template", "", "a sandbox's token cannot change templates")
	}
	if len(tags) == 0 || len(tags) > maxTags {
		return kind.Newf(kind.Invalid, "untag template", "", "want 1 to %d tags", maxTags)
	}
	all, err := ts.Tags(ctx, p, name)
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
			if err := ts.bases.Untag(ctx, &t); err != nil {
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
func (ts *Store) DeleteTemplate(ctx context.Context, p core.Principal, name string) error {
	name, err := ts.OwnName(ctx, p, name)
	if err == nil {
		err = ts.builds.DropBuilds(ctx, p, name)
	}
	if _, said := ts.core.View.Published(p.Tenant, name); err == nil && said {
		err = ts.core.Log.PublishTemplate(ctx, p.Tenant, name, nil) // it must not apply to a later template of that name
	}
	if err != nil {
		return err
	}
	for _, other := range ts.core.View.Templates(p.Tenant) {
		if other.Name != name {
			continue
		}
		if err := ts.bases.Untag(ctx, &other); err != nil {
			return err
		}
	}
	return ts.PruneLayers(ctx, p)
}

// maxUnusedLayers is how many of a tenant's unused layers are kept: the newest, which later
// builds may reuse.
const maxUnusedLayers = 64

// PruneLayers drops the layers of a tenant's builds that are neither in use nor likely to be
// reused, and the bases that only they used.
func (ts *Store) PruneLayers(ctx context.Context, p core.Principal) error {
	if err := ts.core.Sync(ctx); err != nil {
		return err
	}
	all := ts.core.View.Snapshots(func(s *sandbox.Snapshot) bool {
		return s.Tenant == p.Tenant && s.Layer != "" && !strings.HasPrefix(s.Layer, snapshots.ConversationLayers) && !s.Deleted
	})
	// Uses are collected after the layers: a layer that ClaimLayer changes later is not dropped,
	// and the use of one that it changed before is found.
	if err := ts.core.Sync(ctx); err != nil {
		return err
	}
	used := ts.core.TemplateSnapshots()
	for _, b := range ts.builds.PendingBuilds() {
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
		err := ts.snapshots.DropIf(ctx, s.ID, func(now *sandbox.Snapshot) bool { return now.Rev == s.Rev })
		if err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
	}
	return ts.bases.PruneBases(ctx)
}
