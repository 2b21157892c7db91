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

// Root is req for a sandbox that begins from the template which a principal means
// by a name, NAME:TAG or an id. NotFound if there is none; a miss is believed only after
// the view has caught up.
func (c *Core) Root(ctx context.Context, p Principal, name string, req sandbox.Requested) (sandbox.Requested, error) {
	name, host, err := c.Meant(ctx, p, name)
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

// Meant returns the name of the template that a principal means by a name, and reports
// whether that is the host's own files. The name code-interpreter-v1 means the template
// code-interpreter where that exists.
func (c *Core) Meant(ctx context.Context, p Principal, name string) (string, bool, error) {
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

// fromBuilt is req for a sandbox that begins from what a build made.
func (c *Core) fromBuilt(b *template.Built, req sandbox.Requested) (sandbox.Requested, error) {
	if b.Snapshot != "" {
		snap, ok := c.view.Snapshot(sandbox.SnapshotID(b.Snapshot))
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

// Template is what a principal means by a name, NAME:TAG or an id: his own, or
// else one that is shared with all; with TEAM/ before it that team's, if it is his
// own or public. NotFound if there is none.
func (c *Core) Template(ctx context.Context, p Principal, name string) (events.Template, error) {
	if _, rest := ofTeam(name); !refers(rest) {
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

func refers(name string) bool {
	_, err := template.ParseRef(name)
	return err == nil
}

func noTemplate(name string) error {
	return kind.Newf(kind.NotFound, "find template", "", "template '%s' not found", name)
}

func (c *Core) findTemplate(p Principal, name string) (events.Template, bool) {
	tenants := c.templateTenants(p)
	team, name := ofTeam(name)
	if team != "" && p.Tenant != "" {
		tenants = []string{team}
	}
	for _, tenant := range tenants {
		for _, ref := range c.meant(tenant, name) {
			if t, ok := c.view.Template(tenant, ref); ok && !template.Hidden(t.Name) && (tenant == p.Tenant || c.Public(&t)) {
				return t, true
			}
		}
	}
	return events.Template{}, false
}

// meant is what a name can mean, in the order in which it is looked for. Without
// a tag what was built comes before what was imported: they have other tags then.
func (c *Core) meant(tenant, name string) []template.Ref {
	ref, err := template.ParseRef(name)
	if err != nil {
		return nil
	}
	if base, tag, tagged := strings.Cut(name, ":"); template.IsBuiltID(base) {
		for _, t := range c.view.Templates(tenant) {
			if t.Built != nil && string(t.ID) == base && (!tagged || tag == t.Tag) {
				ref.Name = t.Name
			}
		}
	}
	if ref.ID != "" || strings.Contains(name, ":") {
		return []template.Ref{ref}
	}
	refs := []template.Ref{{Name: ref.Name, Tag: DefaultTag}, ref}
	for _, t := range c.view.Templates(tenant) { // of one that has other tags only, any
		if t.Built != nil && t.Name == ref.Name && string(t.ID) == name {
			refs = append(refs, template.Ref{Name: t.Name, Tag: t.Tag})
		}
	}
	return refs
}

// templateTenants are those whose templates a principal may use, his own first.
func (c *Core) templateTenants(p Principal) []string {
	if p.Tenant == "" {
		return nil
	}
	return slices.Compact([]string{p.Tenant, c.cfg.SharedTenant})
}

// Public reports whether all tenants may use a template: what its tenant said last,
// else those that operators import are there for all, and those that somebody builds
// are not.
func (c *Core) Public(t *events.Template) bool {
	return c.publicName(t.Tenant, t.Name, t.Built == nil && t.Tenant == c.cfg.SharedTenant)
}

// BuiltPublic is Public of what a principal builds under a name.
func (c *Core) BuiltPublic(p Principal, name string) bool { return c.publicName(p.Tenant, name, false) }

func (c *Core) publicName(tenant, name string, unless bool) bool {
	if public, said := c.view.Published(tenant, name); said {
		return public
	}
	return unless
}

// Publish says whether all tenants may use the principal's own template, which a
// name or an id means, and gives its name. Sandboxes that others made of it stay.
// NotFound if there is none.
func (c *Core) Publish(ctx context.Context, p Principal, name string, public bool) (string, error) {
	name, err := c.OwnName(ctx, p, name)
	if err == nil {
		err = logError("publish template", name, c.log.PublishTemplate(ctx, p.Tenant, name, &public))
	}
	if err == nil {
		err = c.Sync(ctx)
	}
	return name, err
}

// Templates gives the templates that a principal may use, by name and tag.
func (c *Core) Templates(p Principal) []events.Template {
	var out []events.Template
	for _, tenant := range c.templateTenants(p) {
		if tenant != "" {
			out = append(out, c.view.Templates(tenant)...)
		}
	}
	return slices.DeleteFunc(out, func(t events.Template) bool {
		return template.Hidden(t.Name) || t.Tenant != p.Tenant && !c.Public(&t)
	})
}

// HasTemplatePart reports whether a part of a template is stored.
func (c *Core) HasTemplatePart(ctx context.Context, sum template.Sum) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	return c.log.HasPart(ctx, sum)
}

// PutTemplatePart stores a part as it is packed; the caller has checked that it
// is what its sum says. Exhausted where the servers' store is full.
func (c *Core) PutTemplatePart(ctx context.Context, sum template.Sum, packed []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CreateTimeout)
	defer cancel()
	return c.log.PutPart(ctx, sum, packed)
}

// TagTemplate makes a template of parts that are stored and puts a name on it,
// for the principal's tenant. Invalid for what is no manifest or no name,
// Precondition if a part lacks.
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
	old, had := c.view.Template(p.Tenant, ref)
	if err := c.keepBase(ctx, p.Tenant, ref); err != nil {
		return events.Template{}, err
	}
	if err := c.log.TagTemplate(ctx, p.Tenant, ref, manifest); err != nil {
		return events.Template{}, err
	}
	if err := c.Sync(ctx); err != nil {
		return events.Template{}, err
	}
	t, ok := c.view.Template(p.Tenant, ref)
	if !ok || t.ID != id {
		return events.Template{}, kind.New(kind.Conflict, "make template", name, "somebody else has put the name on another template")
	}
	if had && old.ID != id {
		err = c.sweepParts(ctx, &old.Manifest) // it may have lost its last name
	}
	return t, err
}

// RemoveTemplate takes a name away; by an id all of its names. Parts that no
// template has any more are removed, but for those of one that snapshots or other
// templates stand on. Sandboxes that run keep what they have. A
// part that somebody stores again at this very moment may be lost: then making a
// template of it says so, or a host does.
func (c *Core) RemoveTemplate(ctx context.Context, p Principal, name string) error {
	t, err := c.Template(ctx, p, name)
	if err != nil {
		return err
	}
	if t.Tenant != p.Tenant { // it is shared, or public, and not his: he may have one that is called alike
		return noTemplate(name)
	}
	_, name = ofTeam(name)
	ref, err := template.ParseRef(name)
	if err != nil {
		return err
	}
	for _, other := range c.view.Templates(p.Tenant) {
		byID := (ref.ID != "" || name == string(t.ID)) && other.ID == t.ID && !template.Hidden(other.Name)
		if byID || ref.ID == "" && other.Name == t.Name && other.Tag == t.Tag {
			if err := c.untag(ctx, &other); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepParts removes those of a manifest's parts that no template has.
func (c *Core) sweepParts(ctx context.Context, m *template.Manifest) error {
	used := map[template.Sum]bool{}
	for _, t := range c.view.Templates("") {
		for _, sum := range t.Manifest.Parts {
			used[sum] = true
		}
	}
	for _, sum := range m.Parts {
		if used[sum] {
			continue
		}
		if err := c.log.RemovePart(ctx, sum); err != nil {
			return err
		}
	}
	return nil
}

// TemplateName is how a template is called in answers, by what a sandbox's record
// has of it: its name if it still has one.
func TemplateName(t *events.Template) string {
	if t.Built != nil && t.Tag == DefaultTag {
		return t.Name
	}
	return template.Ref{Name: t.Name, Tag: t.Tag}.String()
}

// HostsWithTemplate names the hosts that have a template already.
func (c *Core) HostsWithTemplate(id template.ID) []string {
	out := []string{}
	for _, h := range c.view.Hosts() {
		if !h.Gone && slices.Contains(h.Templates, string(id)) {
			out = append(out, h.Host)
		}
	}
	return out
}
