package templatestore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

// FromTemplate returns req for a sandbox that starts from the template with the given name,
// NAME:TAG or id. It returns NotFound for an unknown one; a miss is final only after the view
// has caught up.
func (ts *Store) FromTemplate(ctx context.Context, p core.Principal, name string, req sandbox.Requested) (sandbox.Requested, error) {
	name, host, err := ts.ResolveName(ctx, p, name)
	if err != nil {
		return req, err
	}
	if host {
		req.Template = name
		return req, nil
	}
	t, err := ts.Template(ctx, p, name)
	if err != nil {
		return req, err
	}
	if t.Built != nil {
		return ts.fromBuilt(&t, req)
	}
	req.Template = string(t.ID)
	return req, nil
}

// ResolveName returns the template name that a principal's name stands for, and reports whether that
// is the host's own files. The name code-interpreter-v1 stands for the template
// code-interpreter if that exists.
func (ts *Store) ResolveName(ctx context.Context, p core.Principal, name string) (string, bool, error) {
	own, ok := p.OwnedName(name)
	switch {
	case !ok || !template.IsHost(own):
		return name, false, nil
	case own != template.Interpreter:
		return own, true, nil
	}
	switch _, err := ts.Template(ctx, p, template.BuiltInterpreter); {
	case err == nil:
		return template.BuiltInterpreter, false, nil
	case kind.Is(err, kind.NotFound):
		return own, true, nil
	default:
		return "", false, err
	}
}

// fromBuilt returns req for a sandbox that starts from a build's result.
func (ts *Store) fromBuilt(t *catalog.Template, req sandbox.Requested) (sandbox.Requested, error) {
	b := t.Built
	env, err := ts.BuiltEnv(t)
	if err != nil {
		return req, err
	}
	if b.Snapshot != "" {
		snap, ok := ts.core.View.Snapshot(sandbox.SnapshotID(b.Snapshot))
		if !ok || snap.Deleted {
			return req, snapshots.FilesGone("find template", sandbox.SnapshotID(b.Snapshot))
		}
		req = snapshots.From(&snap, req)
	}
	req.Template, req.Built, req.User, req.Workdir, req.Start, req.Ready = b.Base, string(b.ID), b.User, b.Workdir, b.Start, b.Ready
	req.CPUMilli, req.MemoryMiB = b.CPUMilli, b.MemoryMiB
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	return req, nil
}

// BuiltEnv returns the environment of a template that was built.
func (ts *Store) BuiltEnv(t *catalog.Template) (map[string]string, error) {
	env, err := t.Built.OpenEnv(ts.core.Sealer, t.Tenant)
	return maps.Clone(env), err
}

// Template returns the template with a name, NAME:TAG or id: the principal's own, or else a
// shared one; after TEAM/ that team's, if it is the principal's own or public. It returns
// NotFound for any other.
func (ts *Store) Template(ctx context.Context, p core.Principal, name string) (catalog.Template, error) {
	if _, rest := core.SplitTeam(name); !isRef(rest) {
		return catalog.Template{}, noTemplate(name)
	}
	if t, ok := ts.findTemplate(p, name); ok {
		return t, nil
	}
	if err := ts.core.Sync(ctx); err != nil {
		return catalog.Template{}, err
	}
	if t, ok := ts.findTemplate(p, name); ok {
		return t, nil
	}
	return catalog.Template{}, noTemplate(name)
}

func isRef(name string) bool {
	_, err := template.ParseRef(name)
	return err == nil
}

func noTemplate(name string) error {
	return kind.Newf(kind.NotFound, "find template", "", "template '%s' not found", name)
}

func (ts *Store) findTemplate(p core.Principal, name string) (catalog.Template, bool) {
	tenants := ts.templateTenants(p)
	team, name := core.SplitTeam(name)
	if team != "" && p.Tenant != "" {
		tenants = []string{team}
	}
	for _, tenant := range tenants {
		for _, ref := range ts.candidates(tenant, name) {
			if t, ok := ts.core.View.Template(tenant, ref); ok && !template.Hidden(t.Name) && (tenant == p.Tenant || ts.Public(&t)) {
				return t, true
			}
		}
	}
	return catalog.Template{}, false
}

// candidates returns the references that a name may stand for, in order of preference. Without a
// tag, built templates precede imported ones, which have other tags.
func (ts *Store) candidates(tenant, name string) []template.Ref {
	ref, err := template.ParseRef(name)
	if err != nil {
		return nil
	}
	if base, tag, tagged := strings.Cut(name, ":"); template.IsBuiltID(base) {
		for _, t := range ts.core.View.Templates(tenant) {
			if t.Built != nil && string(t.ID) == base && (!tagged || tag == t.Tag) {
				ref.Name = t.Name
			}
		}
	}
	if ref.ID != "" || strings.Contains(name, ":") {
		return []template.Ref{ref}
	}
	refs := []template.Ref{{Name: ref.Name, Tag: core.DefaultTag}, ref}
	for _, t := range ts.core.View.Templates(tenant) { // any tag of one without the default tag
		if t.Built != nil && t.Name == ref.Name && string(t.ID) == name {
			refs = append(refs, template.Ref{Name: t.Name, Tag: t.Tag})
		}
	}
	return refs
}

// templateTenants returns the tenants whose templates a principal may use, its own first.
func (ts *Store) templateTenants(p core.Principal) []string {
	if p.Tenant == "" {
		return nil
	}
	return slices.Compact([]string{p.Tenant, ts.core.SharedTenant})
}

// Public reports whether all tenants may use a template: as last set by its tenant; by default
// the shared tenant's imported templates are public and built ones are not.
func (ts *Store) Public(t *catalog.Template) bool {
	return ts.publicName(t.Tenant, t.Name, t.Built == nil && t.Tenant == ts.core.SharedTenant)
}

// BuiltPublic is Public for a template that a principal builds under a name.
func (ts *Store) BuiltPublic(p core.Principal, name string) bool {
	return ts.publicName(p.Tenant, name, false)
}

func (ts *Store) publicName(tenant, name string, byDefault bool) bool {
	if public, said := ts.core.View.Published(tenant, name); said {
		return public
	}
	return byDefault
}

// Publish sets whether all tenants may use the principal's own template, given by name or id,
// and returns its name. Sandboxes that others created from it stay. It returns NotFound for an
// unknown template.
func (ts *Store) Publish(ctx context.Context, p core.Principal, name string, public bool) (string, error) {
	name, err := ts.OwnName(ctx, p, name)
	if err == nil {
		err = core.LogError("publish template", name, ts.core.Log.PublishTemplate(ctx, p.Tenant, name, &public))
	}
	if err == nil {
		err = ts.core.Sync(ctx)
	}
	return name, err
}

// List returns the templates that a principal may use, by name and tag.
func (ts *Store) List(p core.Principal) []catalog.Template {
	var out []catalog.Template
	for _, tenant := range ts.templateTenants(p) {
		if tenant != "" {
			out = append(out, ts.core.View.Templates(tenant)...)
		}
	}
	return slices.DeleteFunc(out, func(t catalog.Template) bool {
		return template.Hidden(t.Name) || t.Tenant != p.Tenant && !ts.Public(&t)
	})
}

// HasTemplatePart reports whether a part of a template is stored.
func (ts *Store) HasTemplatePart(ctx context.Context, sum template.Sum) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ts.core.CallTimeout)
	defer cancel()
	return ts.core.Log.HasPart(ctx, sum)
}

// PutTemplatePart stores a packed part; the caller has verified its sum. It returns Exhausted
// if the store is full.
func (ts *Store) PutTemplatePart(ctx context.Context, sum template.Sum, packed []byte) error {
	ctx, cancel := context.WithTimeout(ctx, ts.core.CreateTimeout)
	defer cancel()
	return ts.core.Log.PutPart(ctx, sum, packed)
}

// TagTemplate creates a template from stored parts and names it, for the principal's tenant.
// It returns Invalid for a bad manifest or name, and Precondition if a part is missing.
func (ts *Store) TagTemplate(ctx context.Context, p core.Principal, name string, manifest []byte) (catalog.Template, error) {
	ref, err := template.ParseNew(name)
	if err != nil {
		return catalog.Template{}, err
	}
	m, id, err := template.Decode(manifest)
	if err != nil {
		return catalog.Template{}, err
	}
	for _, sum := range m.Parts {
		has, err := ts.HasTemplatePart(ctx, sum)
		if err != nil {
			return catalog.Template{}, err
		}
		if !has {
			return catalog.Template{}, kind.Newf(kind.Precondition, "make template", name, "part %s is not stored: store it first", sum)
		}
	}
	old, had := ts.core.View.Template(p.Tenant, ref)
	if err := ts.bases.KeepBase(ctx, p.Tenant, ref); err != nil {
		return catalog.Template{}, err
	}
	if err := ts.core.Log.TagTemplate(ctx, p.Tenant, ref, manifest); err != nil {
		return catalog.Template{}, err
	}
	if err := ts.core.Sync(ctx); err != nil {
		return catalog.Template{}, err
	}
	t, ok := ts.core.View.Template(p.Tenant, ref)
	if !ok || t.ID != id {
		return catalog.Template{}, kind.New(kind.Conflict, "make template", name, "the name was given to another template at the same time")
	}
	if had && old.ID != id {
		err = ts.bases.SweepParts(ctx, &old.Manifest) // that may have been its last name
	}
	return t, err
}

// RemoveTemplate removes a name, or by an id all names of a template. Parts that no template
// uses any more are removed, except those of a base of snapshots or other templates. Running
// sandboxes keep their files. A part that another client stores again at the same moment may
// be lost: then creating a template from it fails, or its host reports it.
func (ts *Store) RemoveTemplate(ctx context.Context, p core.Principal, name string) error {
	t, err := ts.Template(ctx, p, name)
	if err != nil {
		return err
	}
	if t.Tenant != p.Tenant { // shared or public; the principal may own one of the same name
		return noTemplate(name)
	}
	_, name = core.SplitTeam(name)
	ref, err := template.ParseRef(name)
	if err != nil {
		return err
	}
	for _, other := range ts.core.View.Templates(p.Tenant) {
		byID := (ref.ID != "" || name == string(t.ID)) && other.ID == t.ID && !template.Hidden(other.Name)
		if byID || ref.ID == "" && other.Name == t.Name && other.Tag == t.Tag {
			if err := ts.bases.Untag(ctx, &other); err != nil {
				return err
			}
		}
	}
	return nil
}

// TemplateName returns a template's name in answers: NAME:TAG, or NAME for the default tag
// of a built template.
func TemplateName(t *catalog.Template) string {
	if t.Built != nil && t.Tag == core.DefaultTag {
		return t.Name
	}
	return template.Ref{Name: t.Name, Tag: t.Tag}.String()
}

// HostsWithTemplate returns the names of the hosts that have a template in their cache.
func (ts *Store) HostsWithTemplate(id template.ID) []string {
	out := []string{}
	for _, h := range ts.core.View.Hosts() {
		if !h.Gone && slices.Contains(h.Templates, string(id)) {
			out = append(out, h.Host)
		}
	}
	return out
}

// OwnName returns the name of the principal's own template that tmpl refers to, also if
// it is still being built or if all of its builds failed. It returns NotFound for any
// other.
func (ts *Store) OwnName(ctx context.Context, p core.Principal, tmpl string) (string, error) {
	t, err := ts.own(ctx, p, tmpl)
	if err == nil {
		return t.Name, nil
	}
	tmpl, mine := p.OwnedName(tmpl)
	base, _, _ := strings.Cut(tmpl, ":")
	of := ts.builds.List(p, func(b *catalog.Build) bool { return base == b.Request.Template || base == b.Request.Name })
	if kind.Is(err, kind.NotFound) && mine && len(of) > 0 {
		return of[0].Request.Name, nil
	}
	return "", err
}
