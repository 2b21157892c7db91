package builds

import (
	"context"
	"io"
	"slices"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
)

// Builds implements the operations on builds. Its methods may be called concurrently.
type Builds struct {
	core      *core.Core
	lifecycle *lifecycle.Lifecycle
}

// New returns Builds on c. It does no I/O.
func New(c *core.Core, l *lifecycle.Lifecycle) *Builds {
	return &Builds{core: c, lifecycle: l}
}

// Limits on a tenant's builds that have not ended: those that run, and those that were
// requested but not started.
const (
	maxBuilding = 100
	maxWaiting  = 1000
)

// RequestBuild stores a request to build a template; its steps follow with StartBuild.
// It returns Exhausted if the tenant has too many builds that have not ended.
func (bs *Builds) RequestBuild(ctx context.Context, p core.Principal, req build.Requested) (build.State, error) {
	if p.Tenant == "" || p.Sandbox != "" {
		return build.State{}, kind.New(kind.Denied, "build", "", "a sandbox's token cannot build templates")
	}
	var building, waiting int
	for _, b := range bs.List(p, func(b *catalog.Build) bool { return !b.Over() }) {
		if b.Phase == build.PhaseBuilding {
			building++
		} else {
			waiting++
		}
	}
	if building >= maxBuilding || waiting >= maxWaiting {
		return build.State{}, kind.Newf(kind.Exhausted, "build", "", "%d builds are running and %d were not started", building, waiting)
	}
	req.Template = string(template.BuiltID(p.Tenant, req.Name))
	s, err := bs.core.Log.AppendBuild(ctx, &build.State{ID: build.NewID(), Tenant: p.Tenant}, req)
	return s, core.LogError("build", string(s.ID), err)
}

// StartBuild stores a build's steps; a gateway then runs it. It returns Invalid for
// steps that can never be built and Conflict if the build was started before.
func (bs *Builds) StartBuild(ctx context.Context, p core.Principal, tmpl string, id build.ID, spec build.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	b, err := bs.Build(ctx, p, tmpl, id)
	if err != nil {
		return err
	}
	if b.Phase != build.PhaseWaiting {
		return kind.New(kind.Conflict, "build", string(id), "the build was started before")
	}
	if spec, err = spec.Seal(bs.core.Sealer, b.Tenant, b.ID); err != nil {
		return core.LogError("build", string(id), err)
	}
	if _, err = bs.core.Log.AppendBuild(ctx, &b.State, build.Started{Spec: spec}); err != nil {
		return core.LogError("build", string(id), err)
	}
	return bs.core.Sync(ctx)
}

// Build returns a build of the template with the given id or name. It returns NotFound
// for an unknown build and for another tenant's.
func (bs *Builds) Build(ctx context.Context, p core.Principal, tmpl string, id build.ID) (catalog.Build, error) {
	tmpl, mine := p.OwnedName(tmpl)
	b, ok := bs.core.View.Build(id)
	if !ok || !b.Over() {
		if err := bs.core.Sync(ctx); err != nil {
			return catalog.Build{}, err
		}
		b, ok = bs.core.View.Build(id)
	}
	if !ok || !mine || b.Phase == build.PhaseDeleted || p.Sandbox != "" || b.Tenant != p.Tenant || tmpl != b.Request.Template && tmpl != b.Request.Name {
		return catalog.Build{}, kind.New(kind.NotFound, "find build", "", "build not found")
	}
	return b, nil
}

// List returns the principal's builds for which keep returns true, newest first, as
// of the view. Builds of deleted templates are left out.
func (bs *Builds) List(p core.Principal, keep func(*catalog.Build) bool) []catalog.Build {
	return bs.core.View.Builds(func(b *catalog.Build) bool {
		return p.Sandbox == "" && b.Tenant == p.Tenant && b.Phase != build.PhaseDeleted && keep(b)
	})
}

// BuildLines reads a build's log; see [catalog.Documents.BuildLines].
func (bs *Builds) BuildLines(ctx context.Context, b *catalog.Build, from, most int, keep func(*build.Line) bool) ([]build.Line, bool, error) {
	lines, more, err := bs.core.Log.BuildLines(ctx, b, from, most, keep)
	return lines, more, core.LogError("read log", string(b.ID), err)
}

// DropBuilds deletes a template's builds; running ones stop.
func (bs *Builds) DropBuilds(ctx context.Context, p core.Principal, name string) error {
	for {
		left := bs.List(p, func(b *catalog.Build) bool { return b.Request.Name == name })
		if len(left) == 0 {
			return nil
		}
		for i := range left {
			// Conflict: the gateway that runs the build appended meanwhile; the loop retries.
			if _, err := bs.core.Log.AppendBuild(ctx, &left[i].State, build.Deleted{}); err != nil && !kind.Is(err, kind.Conflict) {
				return core.LogError("delete build", string(left[i].ID), err)
			}
		}
		if err := bs.core.Sync(ctx); err != nil {
			return err
		}
		bs.lifecycle.EndSandboxes(ctx, p, func(s *sandbox.State) bool {
			return slices.ContainsFunc(left, func(b catalog.Build) bool { return s.Request.Build == string(b.ID) })
		})
	}
}

// HasContext reports whether a file that the principal's builds copy is stored; see
// [blob.Store.HasContext].
func (bs *Builds) HasContext(ctx context.Context, p core.Principal, sum string) (bool, error) {
	return bs.core.Log.HasContext(ctx, p.Tenant, sum)
}

// PutContext stores such a file. The caller has checked the upload's signature.
func (bs *Builds) PutContext(ctx context.Context, tenant, sum string, r io.Reader) error {
	return bs.core.Log.PutContext(ctx, tenant, sum, r)
}

// Context reads such a file.
func (bs *Builds) Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error) {
	return bs.core.Log.Context(ctx, tenant, sum)
}

// PendingBuilds returns the builds of all tenants that are to run or are running,
// oldest first.
func (bs *Builds) PendingBuilds() []catalog.Build {
	out := bs.core.View.Builds(func(b *catalog.Build) bool { return b.Phase == build.PhaseBuilding })
	slices.Reverse(out)
	return out
}

// AppendBuild appends to a build's record; see [catalog.Documents.AppendBuild]. Conflict:
// another gateway runs the build.
func (bs *Builds) AppendBuild(ctx context.Context, s *build.State, bodies ...build.Body) (build.State, error) {
	return bs.core.Log.AppendBuild(ctx, s, bodies...)
}
