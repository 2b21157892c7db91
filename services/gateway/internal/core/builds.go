package core

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// Limits on a tenant's builds that have not ended: those that run, and those that were
// requested but not started.
const (
	maxBuilding = 100
	maxWaiting  = 1000
)

// RequestBuild stores a request to build a template; its steps follow with StartBuild.
// It returns Exhausted if the tenant has too many builds that have not ended.
func (c *Core) RequestBuild(ctx context.Context, p Principal, req build.Requested) (build.State, error) {
	if p.Tenant == "" || p.Sandbox != "" {
		return build.State{}, kind.New(kind.Denied, "build", "", "a sandbox's token cannot build templates")
	}
	var building, waiting int
	for _, b := range c.Builds(p, func(b *events.Build) bool { return !b.Over() }) {
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
	s, err := c.Log.AppendBuild(ctx, &build.State{ID: build.NewID(), Tenant: p.Tenant}, req)
	return s, LogError("build", string(s.ID), err)
}

// StartBuild stores a build's steps; a gateway then runs it. It returns Invalid for
// steps that can never be built and Conflict if the build was started before.
func (c *Core) StartBuild(ctx context.Context, p Principal, tmpl string, id build.ID, spec build.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	b, err := c.Build(ctx, p, tmpl, id)
	if err != nil {
		return err
	}
	if b.Phase != build.PhaseWaiting {
		return kind.New(kind.Conflict, "build", string(id), "the build was started before")
	}
	if _, err = c.Log.AppendBuild(ctx, &b.State, build.Started{Spec: spec}); err != nil {
		return LogError("build", string(id), err)
	}
	return c.Sync(ctx)
}

// Build returns a build of the template with the given id or name. It returns NotFound
// for an unknown build and for another tenant's.
func (c *Core) Build(ctx context.Context, p Principal, tmpl string, id build.ID) (events.Build, error) {
	tmpl, mine := p.OwnedName(tmpl)
	b, ok := c.View.Build(id)
	if !ok || !b.Over() {
		if err := c.Sync(ctx); err != nil {
			return events.Build{}, err
		}
		b, ok = c.View.Build(id)
	}
	if !ok || !mine || b.Phase == build.PhaseDeleted || p.Sandbox != "" || b.Tenant != p.Tenant || tmpl != b.Request.Template && tmpl != b.Request.Name {
		return events.Build{}, kind.New(kind.NotFound, "find build", "", "build not found")
	}
	return b, nil
}

// Builds returns the principal's builds for which keep returns true, newest first, as
// of the view. Builds of deleted templates are left out.
func (c *Core) Builds(p Principal, keep func(*events.Build) bool) []events.Build {
	return c.View.Builds(func(b *events.Build) bool {
		return p.Sandbox == "" && b.Tenant == p.Tenant && b.Phase != build.PhaseDeleted && keep(b)
	})
}

// BuildLines reads a build's log; see [events.Log.BuildLines].
func (c *Core) BuildLines(ctx context.Context, b *events.Build, from, most int, keep func(*build.Line) bool) ([]build.Line, bool, error) {
	lines, more, err := c.Log.BuildLines(ctx, b, from, most, keep)
	return lines, more, LogError("read log", string(b.ID), err)
}

// OwnName returns the name of the principal's own template that tmpl refers to, also if
// it is still being built or if all of its builds failed. It returns NotFound for any
// other.
func (c *Core) OwnName(ctx context.Context, p Principal, tmpl string) (string, error) {
	t, err := c.own(ctx, p, tmpl)
	if err == nil {
		return t.Name, nil
	}
	tmpl, mine := p.OwnedName(tmpl)
	base, _, _ := strings.Cut(tmpl, ":")
	of := c.Builds(p, func(b *events.Build) bool { return base == b.Request.Template || base == b.Request.Name })
	if kind.Is(err, kind.NotFound) && mine && len(of) > 0 {
		return of[0].Request.Name, nil
	}
	return "", err
}

// dropBuilds deletes a template's builds; running ones stop.
func (c *Core) dropBuilds(ctx context.Context, p Principal, name string) error {
	for {
		left := c.Builds(p, func(b *events.Build) bool { return b.Request.Name == name })
		if len(left) == 0 {
			return nil
		}
		for i := range left {
			// Conflict: the gateway that runs the build appended meanwhile; the loop retries.
			if _, err := c.Log.AppendBuild(ctx, &left[i].State, build.Deleted{}); err != nil && !kind.Is(err, kind.Conflict) {
				return LogError("delete build", string(left[i].ID), err)
			}
		}
		if err := c.Sync(ctx); err != nil {
			return err
		}
		c.EndSandboxes(ctx, p, func(s *sandbox.State) bool {
			return slices.ContainsFunc(left, func(b events.Build) bool { return s.Request.Build == string(b.ID) })
		})
	}
}

// HasContext reports whether a file that the principal's builds copy is stored; see
// [events.Log.HasContext].
func (c *Core) HasContext(ctx context.Context, p Principal, sum string) (bool, error) {
	return c.Log.HasContext(ctx, p.Tenant, sum)
}

// PutContext stores such a file. The caller has checked the upload's signature.
func (c *Core) PutContext(ctx context.Context, tenant, sum string, r io.Reader) error {
	return c.Log.PutContext(ctx, tenant, sum, r)
}

// Context reads such a file.
func (c *Core) Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error) {
	return c.Log.Context(ctx, tenant, sum)
}

// PendingBuilds returns the builds of all tenants that are to run or are running,
// oldest first.
func (c *Core) PendingBuilds() []events.Build {
	out := c.View.Builds(func(b *events.Build) bool { return b.Phase == build.PhaseBuilding })
	slices.Reverse(out)
	return out
}

// AppendBuild appends to a build's record; see [events.Log.AppendBuild]. Conflict:
// another gateway runs the build.
func (c *Core) AppendBuild(ctx context.Context, s *build.State, bodies ...build.Body) (build.State, error) {
	return c.Log.AppendBuild(ctx, s, bodies...)
}

// EnsureSandbox is CreateSandbox with an id that only the caller has; a sandbox that
// was created before is waited for. After an error it is left as it is: the caller's
// next run may wait for it.
func (c *Core) EnsureSandbox(ctx context.Context, p Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	st, err := c.createSandbox(ctx, p, id, req)
	if err == nil && !st.IsRunning() && !st.InPause() {
		err = notCreated(&st)
	}
	return st, err
}

// EnsureLayer makes a snapshot of a build's sandbox, unless the one with that id
// exists.
func (c *Core) EnsureLayer(ctx context.Context, p Principal, sbx sandbox.ID, take events.TakeSnapshot) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	if _, ok := c.View.Snapshot(take.ID); ok {
		return nil
	}
	st, err := c.find(ctx, p, sbx)
	switch {
	case err != nil:
		return err
	case !st.IsRunning():
		return kind.New(kind.Unavailable, "snapshot", string(sbx), "the build's sandbox is gone: "+st.Cause)
	case !st.Can.Files:
		return kind.Newf(kind.Unimplemented, "snapshot", string(sbx), "driver %s cannot keep a sandbox's files: templates cannot be built with it", st.Driver)
	}
	// A command of its own: a reply to an earlier one may be lost.
	if _, err := c.Call(ctx, &st, process.NewID(sbx), "snapshot."+ulid.Make().String(), take, snapshotTimeout); err != nil {
		return err
	}
	return c.Sync(ctx)
}

// KeepLayer returns when a layer is in the store, from which every compatible host can
// load it even if the host that made it is lost. It returns Exhausted if the store is
// full, Unavailable if the host dies first, and NotFound for a dropped layer. A layer that
// no other host can use stays where it is.
func (c *Core) KeepLayer(ctx context.Context, id sandbox.SnapshotID) error {
	s, err := c.View.ChangeSnapshot(ctx, id, func(s *sandbox.Snapshot) bool {
		if s.Fits == "" || s.Copy.Wanted || s.Copy.Manifest != "" {
			return false
		}
		s.Copy = sandbox.Copy{Wanted: true}
		return true
	})
	if err != nil && !kind.Is(err, kind.NotFound) {
		return LogError("store layer", string(id), err)
	}
	changed, stop := c.View.Changes()
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for there := err == nil; ; s, there = c.View.Snapshot(id) {
		switch {
		case !there || s.Deleted:
			return filesGone("store layer", id)
		case s.Fits == "" || s.Copy.Manifest != "":
			return nil
		case s.Copy.Reason != "":
			return s.Copy.Err("store layer", string(id))
		case !c.HostAlive(s.Host):
			return kind.Newf(kind.Unavailable, "store layer", string(id), "host %s died before the template's files were stored", s.Host)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// filesGone returns the error for a template whose files were dropped.
func filesGone(op string, id sandbox.SnapshotID) error {
	return kind.New(kind.NotFound, op, string(id), "the template's files no longer exist: build it again")
}

// Layer returns the newest usable snapshot of the tenant's builds with the given sum
// that is in the store or on a live host.
func (c *Core) Layer(p Principal, sum string, usable func(*sandbox.Snapshot) bool) (sandbox.Snapshot, bool) {
	for _, s := range c.View.Snapshots(func(s *sandbox.Snapshot) bool { return s.Layer == sum && s.Tenant == p.Tenant && !s.Deleted }) {
		if c.Reachable(&s) && usable(&s) {
			return s, true
		}
	}
	return sandbox.Snapshot{}, false
}

// LayerAmong is Layer limited to the given ids.
func (c *Core) LayerAmong(ids []string, sum string) (sandbox.Snapshot, bool) {
	for _, id := range ids {
		if s, ok := c.LayerOf(sandbox.SnapshotID(id)); ok && s.Layer == sum && c.Reachable(&s) {
			return s, true
		}
	}
	return sandbox.Snapshot{}, false
}

// LayerOf returns a snapshot by its id, unless it was dropped.
func (c *Core) LayerOf(id sandbox.SnapshotID) (sandbox.Snapshot, bool) {
	s, ok := c.View.Snapshot(id)
	return s, ok && !s.Deleted
}

// EndSandboxes ends those of a principal's sandboxes for which which returns true,
// without waiting for their end.
func (c *Core) EndSandboxes(ctx context.Context, p Principal, which func(*sandbox.State) bool) {
	for _, s := range c.Sandboxes(p, func(s *sandbox.State) bool { return !s.Over() && which(s) }) {
		if _, err := c.View.ChangeSandbox(ctx, s.ID, stop); err != nil {
			c.Slog.Warn("end sandbox failed", "sandbox", s.ID, "err", err) // its deadline ends it
		}
	}
}
