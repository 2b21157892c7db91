package core

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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

// What bounds the builds of a tenant that have not ended: those that are being
// done, and those that nobody has started yet.
const (
	maxBuilding = 100
	maxWaiting  = 1000
)

// RequestBuild stores that a template is to be built. What it is made of comes
// with StartBuild. Exhausted if the tenant has too many that have not ended.
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
		return build.State{}, kind.Newf(kind.Exhausted, "build", "", "%d builds have not ended, and %d were not started", building, waiting)
	}
	req.Template = string(template.BuiltID(p.Tenant, req.Name))
	s, err := c.log.AppendBuild(ctx, &build.State{ID: build.NewID(), Tenant: p.Tenant}, req)
	return s, logError("build", string(s.ID), err)
}

// StartBuild says what a build is to do; some gateway then does it. Errors:
// Invalid for what can never be built, Conflict if it was started before.
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
	if _, err = c.log.AppendBuild(ctx, &b.State, build.Started{Spec: spec}); err != nil {
		return logError("build", string(id), err)
	}
	return c.Sync(ctx)
}

// Build gives a build of a template, which is named by its id or its name.
// NotFound if there is none, or if it is another tenant's.
func (c *Core) Build(ctx context.Context, p Principal, tmpl string, id build.ID) (events.Build, error) {
	tmpl, his := p.OwnedName(tmpl)
	b, ok := c.view.Build(id)
	if !ok || !b.Over() {
		if err := c.Sync(ctx); err != nil {
			return events.Build{}, err
		}
		b, ok = c.view.Build(id)
	}
	if !ok || !his || b.Phase == build.PhaseDeleted || p.Sandbox != "" || b.Tenant != p.Tenant || tmpl != b.Request.Template && tmpl != b.Request.Name {
		return events.Build{}, kind.New(kind.NotFound, "find build", "", "build not found")
	}
	return b, nil
}

// Builds gives a principal's builds for which keep is true, newest first, as the
// view has them. Those of deleted templates are gone.
func (c *Core) Builds(p Principal, keep func(*events.Build) bool) []events.Build {
	return c.view.Builds(func(b *events.Build) bool {
		return p.Sandbox == "" && b.Tenant == p.Tenant && b.Phase != build.PhaseDeleted && keep(b)
	})
}

// BuildLines reads a build's log; see events.Log.
func (c *Core) BuildLines(ctx context.Context, b *events.Build, from, most int, keep func(*build.Line) bool) ([]build.Line, bool, error) {
	lines, more, err := c.log.BuildLines(ctx, b, from, most, keep)
	return lines, more, logError("read log", string(b.ID), err)
}

// OwnName is the name of the principal's own template that tmpl means, also of one
// that is still being built, or whose builds have all failed. NotFound if there is
// none.
func (c *Core) OwnName(ctx context.Context, p Principal, tmpl string) (string, error) {
	t, err := c.own(ctx, p, tmpl)
	if err == nil {
		return t.Name, nil
	}
	tmpl, his := p.OwnedName(tmpl)
	base, _, _ := strings.Cut(tmpl, ":")
	of := c.Builds(p, func(b *events.Build) bool { return base == b.Request.Template || base == b.Request.Name })
	if kind.Is(err, kind.NotFound) && his && len(of) > 0 {
		return of[0].Request.Name, nil
	}
	return "", err
}

// dropBuilds deletes a template's builds; those that are being done end.
func (c *Core) dropBuilds(ctx context.Context, p Principal, name string) error {
	for {
		left := c.Builds(p, func(b *events.Build) bool { return b.Request.Name == name })
		if len(left) == 0 {
			return nil
		}
		for i := range left {
			// Conflict: who does it said so meanwhile, and is asked again.
			if _, err := c.log.AppendBuild(ctx, &left[i].State, build.Deleted{}); err != nil && !kind.Is(err, kind.Conflict) {
				return logError("delete build", string(left[i].ID), err)
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

// HasContext and PutContext store the files that a tenant's builds copy, and
// Context reads them; see events.Log.
func (c *Core) HasContext(ctx context.Context, p Principal, sum string) (bool, error) {
	return c.log.HasContext(ctx, p.Tenant, sum)
}

// PutContext is by whoever a signature lets; see HasContext.
func (c *Core) PutContext(ctx context.Context, tenant, sum string, r io.Reader) error {
	return c.log.PutContext(ctx, tenant, sum, r)
}

// Context is read by builds; see HasContext.
func (c *Core) Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error) {
	return c.log.Context(ctx, tenant, sum)
}

// PendingBuilds gives the builds of all tenants that are to be done, the oldest
// first.
func (c *Core) PendingBuilds() []events.Build {
	out := c.view.Builds(func(b *events.Build) bool { return b.Phase == build.PhaseBuilding })
	slices.Reverse(out)
	return out
}

// AppendBuild appends to a build's record; see events.Log. Conflict: somebody
// else does the build.
func (c *Core) AppendBuild(ctx context.Context, s *build.State, bodies ...build.Body) (build.State, error) {
	return c.log.AppendBuild(ctx, s, bodies...)
}

// EnsureSandbox is CreateSandbox of an id that only its maker knows: if it was
// made before it is waited for. After an error it is left as it is: another life of
// its maker's may wait for it, too, or will.
func (c *Core) EnsureSandbox(ctx context.Context, p Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	st, err := c.createSandbox(ctx, p, id, req)
	if err == nil && !st.Live() && !st.Standing() {
		err = notMade(&st)
	}
	return st, err
}

// EnsureLayer has a snapshot of a build's sandbox: the one of that id, or a new
// one.
func (c *Core) EnsureLayer(ctx context.Context, p Principal, sbx sandbox.ID, take events.TakeSnapshot) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	if _, ok := c.view.Snapshot(take.ID); ok {
		return nil
	}
	st, err := c.find(ctx, p, sbx)
	switch {
	case err != nil:
		return err
	case !st.Live():
		return kind.New(kind.Unavailable, "snapshot", string(sbx), "the build's sandbox is gone: "+st.Cause)
	case !st.Can.Files:
		return kind.Newf(kind.Unimplemented, "snapshot", string(sbx), "driver %s cannot keep a sandbox's files: templates cannot be built with it", st.Driver)
	}
	t := target{st: st, sum: process.Summary{ID: process.NewID(sbx)}}
	// A command of its own: the answer to one that was sent before is lost.
	if _, err := c.callFor(ctx, t, "snapshot."+ulid.Make().String(), take, snapshotTimeout); err != nil {
		return err
	}
	return c.Sync(ctx)
}

// KeepLayer returns when a layer is in the store, where every host that fits has it
// from, whatever becomes of the one that made it. Errors: Exhausted where the store is
// full, Unavailable if the host dies before, NotFound for a layer that was dropped. What
// no other host can use is left where it is.
func (c *Core) KeepLayer(ctx context.Context, id sandbox.SnapshotID) error {
	s, err := c.view.ChangeSnapshot(ctx, id, func(s *sandbox.Snapshot) bool {
		if s.Fits == "" || s.Copy.Wanted || s.Copy.Manifest != "" {
			return false
		}
		s.Copy = sandbox.Copy{Wanted: true}
		return true
	})
	if err != nil && !kind.Is(err, kind.NotFound) {
		return logError("store layer", string(id), err)
	}
	changed, stop := c.view.Changes()
	defer stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for there := err == nil; ; s, there = c.view.Snapshot(id) {
		switch {
		case !there || s.Deleted:
			return filesGone("store layer", id)
		case s.Fits == "" || s.Copy.Manifest != "":
			return nil
		case s.Copy.Reason != "":
			return s.Copy.Err("store layer", string(id))
		case !c.HostAlive(s.Host):
			return kind.Newf(kind.Unavailable, "store layer", string(id), "host %s, which made the template's files, died before they were stored", s.Host)
		}
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// filesGone says that what a template is made of was dropped.
func filesGone(op string, id sandbox.SnapshotID) error {
	return kind.New(kind.NotFound, op, string(id), "the template's files are not there any more: build it again")
}

// Layer gives the newest snapshot that a tenant's builds made by a sum, on a host
// that lives or in the store, of those that are usable.
func (c *Core) Layer(p Principal, sum string, usable func(*sandbox.Snapshot) bool) (sandbox.Snapshot, bool) {
	for _, s := range c.view.Snapshots(func(s *sandbox.Snapshot) bool { return s.Layer == sum && s.Tenant == p.Tenant && !s.Deleted }) {
		if c.reachable(&s) && usable(&s) {
			return s, true
		}
	}
	return sandbox.Snapshot{}, false
}

// LayerAmong is Layer of some snapshots only.
func (c *Core) LayerAmong(ids []string, sum string) (sandbox.Snapshot, bool) {
	for _, id := range ids {
		if s, ok := c.LayerOf(sandbox.SnapshotID(id)); ok && s.Layer == sum && c.reachable(&s) {
			return s, true
		}
	}
	return sandbox.Snapshot{}, false
}

// reachable reports whether a snapshot is in the store, or on a host that lives.
func (c *Core) reachable(s *sandbox.Snapshot) bool {
	return s.Copy.Manifest != "" || c.HostAlive(s.Host)
}

// LayerOf gives a snapshot by its id; one that was dropped is not there.
func (c *Core) LayerOf(id sandbox.SnapshotID) (sandbox.Snapshot, bool) {
	s, ok := c.view.Snapshot(id)
	return s, ok && !s.Deleted
}

// Secretly makes a key of a text that nobody can guess who does not know the
// cluster's secret; the same everywhere.
func (c *Core) Secretly(text string) string {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte("key")) //nolint:errcheck // a hash never fails
	mac.Write([]byte(text))  //nolint:errcheck // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// EndSandboxes asks those of a principal's sandboxes to end for which which is
// true, and does not wait for it.
func (c *Core) EndSandboxes(ctx context.Context, p Principal, which func(*sandbox.State) bool) {
	for _, s := range c.Sandboxes(p, func(s *sandbox.State) bool { return !s.Over() && which(s) }) {
		if _, err := c.view.ChangeSandbox(ctx, s.ID, stop); err != nil {
			c.slog.Warn("end sandbox", "sandbox", s.ID, "err", err) // its deadline ends it
		}
	}
}
