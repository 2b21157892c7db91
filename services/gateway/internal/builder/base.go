package builder

import (
	"context"
	"strings"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/image"
	"github.com/millrace/millrace/internal/part"
	"github.com/millrace/millrace/services/gateway/internal/bases"
	"github.com/millrace/millrace/services/gateway/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// origin is the base of the next layer.
type origin struct {
	settings
	template string           // an id, or the host's own files
	snap     sandbox.Snapshot // snapshot with the files; without an ID: the template alone
	sum      string           // hash of all inputs
}

// Names resolves the names of templates.
type Names interface {
	ResolveName(ctx context.Context, p core.Principal, name string) (string, bool, error)
	Template(ctx context.Context, p core.Principal, name string) (catalog.Template, error)
}

// Parts stores the parts of templates.
type Parts interface {
	HasTemplatePart(ctx context.Context, sum template.Sum) (bool, error)
	PutTemplatePart(ctx context.Context, sum template.Sum, packed []byte) error
}

// Bases keeps the templates that layers are based on.
type Bases interface {
	HiddenTemplate(p core.Principal, of string) (catalog.Template, bool)
	HideTemplate(ctx context.Context, p core.Principal, of string, manifest []byte) error
}

// Credentials opens the credentials of registries.
type Credentials interface {
	OpenCredentials(tenant string, id build.ID, sealed []byte) (builds.Credentials, error)
}

// BaseLayers are the layers that a build can be based on.
type BaseLayers interface {
	LayerOf(id sandbox.SnapshotID) (sandbox.Snapshot, bool)
	ClaimLayer(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error)
}

// resolver finds the base of a build, and imports it if it is an image.
type resolver struct {
	record      *buildRecord
	principal   core.Principal
	spec        *build.Spec
	templates   Names
	parts       Parts
	bases       Bases
	layers      BaseLayers
	credentials Credentials
	registries  registries
	keys        Keys
	ring        *seal.Ring
}

// base returns the base of the build: the one in its record, or else the one that the spec
// refers to now, which base then records. It claims the base's files; if they were dropped
// before, the name refers to something else by now, and base resolves it again.
func (rs *resolver) base(ctx context.Context) (origin, error) {
	if b := rs.record.current().Base; b != nil {
		o, err := rs.recordedBase(b)
		if err == nil {
			_, err = rs.layers.ClaimLayer(ctx, o.snap.ID)
		}
		if !kind.Is(err, kind.NotFound) || rs.record.mark().Step > 0 {
			return o, err
		}
	}
	for {
		o, err := rs.resolve(ctx)
		if err != nil {
			return o, err
		}
		s := rs.record.current()
		based := build.Based{
			Template: o.template, Snapshot: string(o.snap.ID), Sum: o.sum,
			Env: o.env, User: o.user, Workdir: o.workdir, Start: o.start, Ready: o.ready,
		}
		if based, err = based.Seal(rs.ring, s.Tenant, s.ID); err != nil {
			return o, err
		}
		if err := rs.record.append(ctx, based); err != nil {
			return o, err
		}
		if _, err := rs.layers.ClaimLayer(ctx, o.snap.ID); !kind.Is(err, kind.NotFound) {
			return o, err
		}
	}
}

// recordedBase returns the recorded base of a build, even if its name refers to something else now.
func (rs *resolver) recordedBase(b *build.Based) (origin, error) {
	s := rs.record.current()
	env, err := b.OpenEnv(rs.ring, s.Tenant, s.ID)
	if err != nil {
		return origin{}, err
	}
	o := origin{
		settings: settings{env: env, user: b.User, workdir: b.Workdir, start: b.Start, ready: b.Ready},
		template: b.Template, sum: b.Sum,
	}
	return o, rs.loadFiles(&o, b.Snapshot, rs.spec.Template)
}

// loadFiles loads the snapshot of the base called name, if it has one.
func (rs *resolver) loadFiles(o *origin, snap, name string) error {
	if snap == "" {
		return nil
	}
	var ok bool
	if o.snap, ok = rs.layers.LayerOf(sandbox.SnapshotID(snap)); !ok {
		return kind.Newf(kind.NotFound, "build", name, "the files of template '%s' no longer exist: build it again", name)
	}
	return nil
}

// resolve resolves the base of the build's spec, and imports it if it is an image.
func (rs *resolver) resolve(ctx context.Context) (origin, error) {
	name := rs.spec.Template
	if rs.spec.Image != "" {
		name = rs.spec.Image
	}
	if rs.record.mark().Step == 0 && rs.record.current().Lines == 0 {
		if err := rs.record.logLine(ctx, "[base] FROM "+name); err != nil {
			return origin{}, err
		}
	}
	name, host, err := rs.templates.ResolveName(ctx, rs.principal, name)
	if err != nil {
		return origin{}, err
	}
	if host || rs.spec.Image != "" && isBase(name) {
		return origin{template: template.Base, sum: template.Base}, nil
	}
	if rs.spec.Image != "" && strings.Contains(name, "/") {
		return rs.fromImage(ctx, name) // a registry's user may have the same name as a team
	}
	t, err := rs.templates.Template(ctx, rs.principal, name)
	switch {
	case err == nil:
		return rs.fromTemplate(ctx, &t)
	case rs.spec.Image == "" || !kind.Is(err, kind.NotFound):
		return origin{}, err
	}
	return rs.fromImage(ctx, name)
}

// isBase reports whether an image is one of E2B's own, which the host's files replace.
func isBase(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "index.docker.io/")
	name, _, _ = strings.Cut(name, ":")
	return name == "e2bdev/base" || name == "e2bdev/code-interpreter"
}

func (rs *resolver) fromTemplate(ctx context.Context, t *catalog.Template) (origin, error) {
	b := t.Built
	if b == nil {
		return rs.fromManifest(ctx, t, bases.HiddenReason(t.ID))
	}
	env, err := b.OpenEnv(rs.ring, t.Tenant)
	if err != nil {
		return origin{}, err
	}
	o := origin{
		settings: settings{env: env, user: b.User, workdir: b.Workdir, start: b.Start, ready: b.Ready},
		template: b.Base, sum: "base " + b.Base,
	}
	if err := rs.loadFiles(&o, b.Snapshot, t.Name); err != nil {
		return o, err
	}
	if b.Snapshot != "" {
		o.sum = "layer " + b.Snapshot
	}
	if len(env) > 0 || b.User != "" || b.Workdir != "" { // they are inputs of the layers on top, too
		o.sum = chain(rs.keys, o.sum, env, b.User, b.Workdir)
	}
	return o, nil
}

// fromManifest returns an imported template as the base, and keeps it for as long as layers
// are based on it.
func (rs *resolver) fromManifest(ctx context.Context, t *catalog.Template, of string) (origin, error) {
	m := t.Manifest
	o := origin{settings: settings{env: m.Env, user: m.User, workdir: m.Workdir}, template: string(t.ID), sum: string(t.ID)}
	if _, ok := rs.bases.HiddenTemplate(rs.principal, of); ok {
		return o, nil
	}
	raw, _, err := m.Encode()
	if err != nil {
		return o, err
	}
	return o, rs.bases.HideTemplate(ctx, rs.principal, of, raw)
}

// fromImage returns a registry's image as the base, imported as a template.
func (rs *resolver) fromImage(ctx context.Context, name string) (origin, error) {
	scratch, done, err := newScratch()
	if err != nil {
		return origin{}, err
	}
	defer done()
	registry := image.Registry{Scratch: scratch, Transport: rs.registries.transport()}
	if len(rs.spec.Credentials) > 0 {
		if registry.Username, registry.Password, err = rs.login(ctx); err != nil {
			return origin{}, err
		}
	}
	img, digest, err := image.Pull(ctx, name, registry)
	if err != nil {
		return origin{}, err
	}
	img.Sudo = true
	of := imageSum + digest
	if t, ok := rs.bases.HiddenTemplate(rs.principal, of); ok {
		whole, err := rs.hasAllParts(ctx, t.Manifest.Parts)
		if err != nil {
			return origin{}, err
		}
		if whole {
			return rs.fromImported(ctx, &t, of)
		}
	}
	if err := rs.record.logLine(ctx, "[base] Pulling "+name+" ("+digest+")"); err != nil {
		return origin{}, err
	}
	p, err := part.New()
	if err != nil {
		return origin{}, err
	}
	defer p.Close()
	raw, _, err := image.Pack(ctx, img, image.Options{}, func(ctx context.Context, sum template.Sum, b []byte) error {
		has, err := rs.parts.HasTemplatePart(ctx, sum)
		if has || err != nil {
			return err
		}
		return rs.parts.PutTemplatePart(ctx, sum, p.Pack(b))
	})
	if err != nil {
		return origin{}, err
	}
	if err := rs.bases.HideTemplate(ctx, rs.principal, of, raw); err != nil {
		return origin{}, err
	}
	t, ok := rs.bases.HiddenTemplate(rs.principal, of)
	if !ok {
		return origin{}, kind.New(kind.Internal, "build", name, "the imported image is not in the view")
	}
	return rs.fromImported(ctx, &t, of)
}

// fromImported returns a template that was imported from a registry's image as the base.
func (rs *resolver) fromImported(ctx context.Context, t *catalog.Template, of string) (origin, error) {
	o, err := rs.fromManifest(ctx, t, of)
	o.sum = imageSum + o.sum
	return o, err
}

// hasAllParts reports whether all parts of a template are stored. Missing parts of an image can
// only be restored from the image.
func (rs *resolver) hasAllParts(ctx context.Context, parts []template.Sum) (bool, error) {
	for _, sum := range parts {
		if has, err := rs.parts.HasTemplatePart(ctx, sum); !has || err != nil {
			return false, err
		}
	}
	return true, nil
}

// login returns the user name and the password for the image's registry.
func (rs *resolver) login(ctx context.Context) (username, password string, err error) {
	st := rs.record.current()
	c, err := rs.credentials.OpenCredentials(st.Tenant, st.ID, rs.spec.Credentials)
	if err != nil || c.Region == "" {
		return c.Username, c.Password, err
	}
	return rs.registries.ecrLogin(ctx, c)
}
