package builder

import (
	"context"
	"strings"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/image"
	"github.com/millrace/millrace/internal/part"
	"github.com/millrace/millrace/services/gateway/internal/bases"
)

// origin is the base of the next layer.
type origin struct {
	settings
	template string           // an id, or the host's own files
	snap     sandbox.Snapshot // snapshot with the files; without an ID: the template alone
	sum      string           // hash of all inputs
}

// base returns the base of the build: the one in its record, or else the one that the spec
// refers to now, which base then records. It claims the base's files; if they were dropped
// before, the name refers to something else by now, and base resolves it again.
func (r *run) base(ctx context.Context) (origin, error) {
	if b := r.current().Base; b != nil {
		o, err := r.recordedBase(b)
		if err == nil {
			_, err = r.cfg.Ops.Snapshots.ClaimLayer(ctx, o.snap.ID)
		}
		if !kind.Is(err, kind.NotFound) || r.mark().Step > 0 {
			return o, err
		}
	}
	for {
		o, err := r.resolve(ctx)
		if err != nil {
			return o, err
		}
		if err := r.append(ctx, build.Based{
			Template: o.template, Snapshot: string(o.snap.ID), Sum: o.sum,
			Env: o.env, User: o.user, Workdir: o.workdir, Start: o.start, Ready: o.ready,
		}); err != nil {
			return o, err
		}
		if _, err := r.cfg.Ops.Snapshots.ClaimLayer(ctx, o.snap.ID); !kind.Is(err, kind.NotFound) {
			return o, err
		}
	}
}

// recordedBase returns the recorded base of a build, even if its name refers to something else now.
func (r *run) recordedBase(b *build.Based) (origin, error) {
	o := origin{
		settings: settings{env: b.Env, user: b.User, workdir: b.Workdir, start: b.Start, ready: b.Ready},
		template: b.Template, sum: b.Sum,
	}
	return o, r.loadFiles(&o, b.Snapshot, r.spec.Template)
}

// loadFiles loads the snapshot of the base called name, if it has one.
func (r *run) loadFiles(o *origin, snap, name string) error {
	if snap == "" {
		return nil
	}
	var ok bool
	if o.snap, ok = r.cfg.Ops.Snapshots.LayerOf(sandbox.SnapshotID(snap)); !ok {
		return kind.Newf(kind.NotFound, "build", name, "the files of template '%s' no longer exist: build it again", name)
	}
	return nil
}

// resolve resolves the base of the build's spec, and imports it if it is an image.
func (r *run) resolve(ctx context.Context) (origin, error) {
	name := r.spec.Template
	if r.spec.Image != "" {
		name = r.spec.Image
	}
	if r.mark().Step == 0 && r.current().Lines == 0 {
		if err := r.logLine(ctx, "[base] FROM "+name); err != nil {
			return origin{}, err
		}
	}
	name, host, err := r.cfg.Ops.Templates.ResolveName(ctx, r.principal, name)
	if err != nil {
		return origin{}, err
	}
	if host || r.spec.Image != "" && isBase(name) {
		return origin{template: template.Base, sum: template.Base}, nil
	}
	if r.spec.Image != "" && strings.Contains(name, "/") {
		return r.fromImage(ctx, name) // a registry's user may have the same name as a team
	}
	t, err := r.cfg.Ops.Templates.Template(ctx, r.principal, name)
	switch {
	case err == nil:
		return r.fromTemplate(ctx, &t)
	case r.spec.Image == "" || !kind.Is(err, kind.NotFound):
		return origin{}, err
	}
	return r.fromImage(ctx, name)
}

// isBase reports whether an image is one of E2B's own, which the host's files replace.
func isBase(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "index.docker.io/")
	name, _, _ = strings.Cut(name, ":")
	return name == "e2bdev/base" || name == "e2bdev/code-interpreter"
}

func (r *run) fromTemplate(ctx context.Context, t *events.Template) (origin, error) {
	b := t.Built
	if b == nil {
		return r.fromManifest(ctx, t, bases.HiddenReason(t.ID))
	}
	o := origin{
		settings: settings{env: b.Env, user: b.User, workdir: b.Workdir, start: b.Start, ready: b.Ready},
		template: b.Base, sum: "base " + b.Base,
	}
	if err := r.loadFiles(&o, b.Snapshot, t.Name); err != nil {
		return o, err
	}
	if b.Snapshot != "" {
		o.sum = "layer " + b.Snapshot
	}
	if len(b.Env) > 0 || b.User != "" || b.Workdir != "" { // they are inputs of the layers on top, too
		o.sum = chain(o.sum, b.Env, b.User, b.Workdir)
	}
	return o, nil
}

// fromManifest returns an imported template as the base, and keeps it for as long as layers
// are based on it.
func (r *run) fromManifest(ctx context.Context, t *events.Template, of string) (origin, error) {
	m := t.Manifest
	o := origin{settings: settings{env: m.Env, user: m.User, workdir: m.Workdir}, template: string(t.ID), sum: string(t.ID)}
	if _, ok := r.cfg.Ops.Bases.HiddenTemplate(r.principal, of); ok {
		return o, nil
	}
	raw, _, err := m.Encode()
	if err != nil {
		return o, err
	}
	return o, r.cfg.Ops.Bases.HideTemplate(ctx, r.principal, of, raw)
}

// fromImage returns a registry's image as the base, imported as a template.
func (r *run) fromImage(ctx context.Context, name string) (origin, error) {
	scratch, done, err := newScratch()
	if err != nil {
		return origin{}, err
	}
	defer done()
	registry := image.Registry{Scratch: scratch, Transport: r.cfg.transport()}
	if len(r.spec.Credentials) > 0 {
		if registry.Username, registry.Password, err = r.login(ctx); err != nil {
			return origin{}, err
		}
	}
	img, digest, err := image.Pull(ctx, name, registry)
	if err != nil {
		return origin{}, err
	}
	img.Sudo = true
	of := imageSum + digest
	if t, ok := r.cfg.Ops.Bases.HiddenTemplate(r.principal, of); ok {
		whole, err := r.hasAllParts(ctx, t.Manifest.Parts)
		if err != nil {
			return origin{}, err
		}
		if whole {
			return r.fromImported(ctx, &t, of)
		}
	}
	if err := r.logLine(ctx, "[base] Pulling "+name+" ("+digest+")"); err != nil {
		return origin{}, err
	}
	p, err := part.New()
	if err != nil {
		return origin{}, err
	}
	defer p.Close()
	raw, _, err := image.Pack(ctx, img, image.Options{}, func(ctx context.Context, sum template.Sum, b []byte) error {
		has, err := r.cfg.Ops.Templates.HasTemplatePart(ctx, sum)
		if has || err != nil {
			return err
		}
		return r.cfg.Ops.Templates.PutTemplatePart(ctx, sum, p.Pack(b))
	})
	if err != nil {
		return origin{}, err
	}
	if err := r.cfg.Ops.Bases.HideTemplate(ctx, r.principal, of, raw); err != nil {
		return origin{}, err
	}
	t, ok := r.cfg.Ops.Bases.HiddenTemplate(r.principal, of)
	if !ok {
		return origin{}, kind.New(kind.Internal, "build", name, "the imported image is not in the view")
	}
	return r.fromImported(ctx, &t, of)
}

// fromImported returns a template that was imported from a registry's image as the base.
func (r *run) fromImported(ctx context.Context, t *events.Template, of string) (origin, error) {
	o, err := r.fromManifest(ctx, t, of)
	o.sum = imageSum + o.sum
	return o, err
}

// hasAllParts reports whether all parts of a template are stored. Missing parts of an image can
// only be restored from the image.
func (r *run) hasAllParts(ctx context.Context, parts []template.Sum) (bool, error) {
	for _, sum := range parts {
		if has, err := r.cfg.Ops.Templates.HasTemplatePart(ctx, sum); !has || err != nil {
			return false, err
		}
	}
	return true, nil
}

// login returns the user name and the password for the image's registry.
func (r *run) login(ctx context.Context) (username, password string, err error) {
	c, err := r.cfg.Ops.Builds.OpenCredentials(r.spec.Credentials)
	if err != nil || c.Region == "" {
		return c.Username, c.Password, err
	}
	return r.cfg.ecrLogin(ctx, c)
}
