package core

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// FromTemplate returns req for a sandbox that starts from the template with the given name, NAME:TAG
// or id. It returns NotFound for an unknown one; a miss is final only after the view has
// caught up.
func (c *Core) FromTemplate(ctx context.Context, p Principal, name string, req sandbox.Requested) (sandbox.Requested, error) {
	name, host, err := c.ResolveName(ctx, p, name)
	if err != nil {
		return req, err
	}
	if host {
		req.Template = name
		return req, nil
	}
	t, err := c.Template(ctx, p, name)
	if err != nil {
		return req, err
	}
	if t.Built != nil {
		return c.fromBuilt(t.Built, req)
	}
	req.Template = string(t.ID)
	return req, nil
}

// ResolveName returns the template name that a principal's name stands for, and reports whether that
// is the host's own files. The name code-interpreter-v1 stands for the template
// code-interpreter if that exists.
func (c *Core) ResolveName(ctx context.Context, p Principal, name string) (string, bool, error) {
	own, ok := p.OwnedName(name)
	switch {
	case !ok || !template.IsHost(own):
		return name, false, nil
	case own != template.Interpreter:
		return own, true, nil
	}
	switch _, err := c.Template(ctx, p, template.BuiltInterpreter); {
	case err == nil:
		return template.BuiltInterpreter, false, nil
	case kind.Is(err, kind.NotFound):
		return own, true, nil
	default:
		return "", false, err
	}
}

// fromBuilt returns req for a sandbox that starts from a build's result.
func (c *Core) fromBuilt(b *template.Built, req sandbox.Requested) (sandbox.Requested, error) {
	if b.Snapshot != "" {
		snap, ok := c.View.Snapshot(sandbox.SnapshotID(b.Snapshot))
		if !ok || snap.Deleted {
			return req, filesGone("find template", sandbox.SnapshotID(b.Snapshot))
		}
		req = From(&snap, req)
	}
	req.Template, req.Built, req.User, req.Workdir, req.Start, req.Ready = b.Base, string(b.ID), b.User, b.Workdir, b.Start, b.Ready
	req.CPUMilli, req.MemoryMiB = b.CPUMilli, b.MemoryMiB
	env := maps.Clone(b.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	return req, nil
}

// Template returns the template with a name, NAME:TAG or id: the principal's own, or else a
// shared one; after TEAM/ that team's, if it is the principal's own or public. It returns
// NotFound for any other.
func (c *Core) Template(ctx context.Context, p Principal, name string) (events.Template, error) {
	if _, rest := SplitTeam(name); !isRef(rest) {
		return events.Template{}, noTemplate(name)
	}
	if t, ok := c.findTemplate(p, name); ok {
		return t, nil
	}
	if err := c.Sync(ctx); err != nil {
		return events.Template{}, err
	}
	if t, ok := c.findTemplate(p, name); ok {
		return t, nil
	}
	return events.Template{}, noTemplate(name)
}

func isRef(name string) bool {
	_, err := template.ParseRef(name)
	return err == nil
}

func noTemplate(name string) error {
	return kind.Newf(kind.NotFound, "find template", "", "template '%s' not found", name)
}

func (c *Core) findTemplate(p Principal, name string) (events.Template, bool) {
	tenants := c.templateTenants(p)
	team, name := SplitTeam(name)
	if team != "" && p.Tenant != "" {
		tenants = []string{team}
	}
	for _, tenant := range tenants {
		for _, ref := range c.candidates(tenant, name) {
			if t, ok := c.View.Template(tenant, ref); ok && !template.Hidden(t.Name) && (tenant == p.Tenant || c.Public(&t)) {
				return t, true
			}
		}
	}
	return events.Template{}, false
}

// candidates returns the references that a name may stand for, in order of preference. Without a
// tag, built templates precede imported ones, which have other tags.
func (c *Core) candidates(tenant, name string) []template.Ref {
	ref, err := template.ParseRef(name)
	if err != nil {
		return nil
	}
	if base, tag, tagged := strings.Cut(name, ":"); template.IsBuiltID(base) {
		for _, t := range c.View.Templates(tenant) {
			if t.Built != nil && string(t.ID) == base && (!tagged || tag == t.Tag) {
				ref.Name = t.Name
			}
		}
	}
	if ref.ID != "" || strings.Contains(name, ":") {
		return []template.Ref{ref}
	}
	refs := []template.Ref{{Name: ref.Name, Tag: DefaultTag}, ref}
	for _, t := range c.View.Templates(tenant) { // any tag of one without the default tag
		if t.Built != nil && t.Name == ref.Name && string(t.ID) == name {
			refs = append(refs, template.Ref{Name: t.Name, Tag: t.Tag})
		}
	}
	return refs
}

// templateTenants returns the tenants whose templates a principal may use, its own first.
func (c *Core) templateTenants(p Principal) []string {
	if p.Tenant == "" {
		return nil
	}
	return slices.Compact([]string{p.Tenant, c.SharedTenant})
}

// Public reports whether all tenants may use a template: as last set by its tenant; by default
// the shared tenant's imported templates are public and built ones are not.
func (c *Core) Public(t *events.Template) bool {
	return c.publicName(t.Tenant, t.Name, t.Built == nil && t.Tenant == c.SharedTenant)
}

// BuiltPublic is Public for a template that a principal builds under a name.
func (c *Core) BuiltPublic(p Principal, name string) bool { return c.publicName(p.Tenant, name, false) }

func (c *Core) publicName(tenant, name string, byDefault bool) bool {
	if public, said := c.View.Published(tenant, name); said {
		return public
	}
	return byDefault
}

// Publish sets whether all tenants may use the principal's own template, given by name or id,
// and returns its name. Sandboxes that others created from it stay. It returns NotFound for an
// unknown template.
func (c *Core) Publish(ctx context.Context, p Principal, name string, public bool) (string, error) {
	name, err := c.OwnName(ctx, p, name)
	if err == nil {
		err = LogError("publish template", name, c.Log.PublishTemplate(ctx, p.Tenant, name, &public))
	}
	if err == nil {
		err = c.Sync(ctx)
	}
	return name, err
}

// Templates returns the templates that a principal may use, by name and tag.
func (c *Core) Templates(p Principal) []events.Template {
	var out []events.Template
	for _, tenant := range c.templateTenants(p) {
		if tenant != "" {
			out = append(out, c.View.Templates(tenant)...)
		}
	}
	return slices.DeleteFunc(out, func(t events.Template) bool {
		return template.Hidden(t.Name) || t.Tenant != p.Tenant && !c.Public(&t)
	})
}

// HasTemplatePart reports whether a part of a template is stored.
func (c *Core) HasTemplatePart(ctx context.Context, sum template.Sum) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	return c.Log.HasPart(ctx, sum)
}

// PutTemplatePart stores a packed part; the caller has verified its sum. It returns Exhausted
// if the store is full.
func (c *Core) PutTemplatePart(ctx context.Context, sum template.Sum, packed []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.CreateTimeout)
	defer cancel()
	return c.Log.PutPart(ctx, sum, packed)
}

// TagTemplate creates a template from stored parts and names it, for the principal's tenant.
// It returns Invalid for a bad manifest or name, and Precondition if a part is missing.
func (c *Core) TagTemplate(ctx context.Context, p Principal, name string, manifest []byte) (events.Template, error) {
	ref, err := template.ParseNew(name)
	if err != nil {
		return events.Template{}, err
	}
	m, id, err := template.Decode(manifest)
	if err != nil {
		return events.Template{}, err
	}
	for _, sum := range m.Parts {
		has, err := c.HasTemplatePart(ctx, sum)
		if err != nil {
			return events.Template{}, err
		}
		if !has {
			return events.Template{}, kind.Newf(kind.Precondition, "make template", name, "part %s is not stored: store it first", sum)
		}
	}
	old, had := c.View.Template(p.Tenant, ref)
	if err := c.keepBase(ctx, p.Tenant, ref); err != nil {
		return events.Template{}, err
	}
	if err := c.Log.TagTemplate(ctx, p.Tenant, ref, manifest); err != nil {
		return events.Template{}, err
	}
	if err := c.Sync(ctx); err != nil {
		return events.Template{}, err
	}
	t, ok := c.View.Template(p.Tenant, ref)
	if !ok || t.ID != id {
		return events.Template{}, kind.New(kind.Conflict, "make template", name, "the name was given to another template at the same time")
	}
	if had && old.ID != id {
		err = c.sweepParts(ctx, &old.Manifest) // that may have been its last name
	}
	return t, err
}

// RemoveTemplate removes a name, or by an id all names of a template. Parts that no template
// uses any more are removed, except those of a base of snapshots or other templates. Running
// sandboxes keep their files. A part that another client stores again at the same moment may
// be lost: then creating a template from it fails, or its host reports it.
func (c *Core) RemoveTemplate(ctx context.Context, p Principal, name string) error {
	t, err := c.Template(ctx, p, name)
	if err != nil {
		return err
	}
	if t.Tenant != p.Tenant { // shared or public; the principal may own one of the same name
		return noTemplate(name)
	}
	_, name = SplitTeam(name)
	ref, err := template.ParseRef(name)
	if err != nil {
		return err
	}
	for _, other := range c.View.Templates(p.Tenant) {
		byID := (ref.ID != "" || name == string(t.ID)) && other.ID == t.ID && !template.Hidden(other.Name)
		if byID || ref.ID == "" && other.Name == t.Name && other.Tag == t.Tag {
			if err := c.untag(ctx, &other); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepParts removes those of a manifest's parts that no template uses.
func (c *Core) sweepParts(ctx context.Context, m *template.Manifest) error {
	used := map[template.Sum]bool{}
	for _, t := range c.View.Templates("") {
		for _, sum := range t.Manifest.Parts {
			used[sum] = true
		}
	}
	for _, sum := range m.Parts {
		if used[sum] {
			continue
		}
		if err := c.Log.RemovePart(ctx, sum); err != nil {
			return err
		}
	}
	return nil
}

// TemplateName returns a template's name in answers: NAME:TAG, or NAME for the default tag
// of a built template.
func TemplateName(t *events.Template) string {
	if t.Built != nil && t.Tag == DefaultTag {
		return t.Name
	}
	return template.Ref{Name: t.Name, Tag: t.Tag}.String()
}

// HostsWithTemplate returns the names of the hosts that have a template in their cache.
func (c *Core) HostsWithTemplate(id template.ID) []string {
	out := []string{}
	for _, h := range c.View.Hosts() {
		if !h.Gone && slices.Contains(h.Templates, string(id)) {
			out = append(out, h.Host)
		}
	}
	return out
}
