package builder

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Builds finds builds.
type Builds interface {
	Build(ctx context.Context, p core.Principal, tmpl string, id build.ID) (catalog.Build, error)
}

// Templates receives what was built.
type Templates interface {
	TagBuilt(ctx context.Context, p core.Principal, name string, tags []string, b *template.Built) error
	PruneLayers(ctx context.Context, p core.Principal) error
}

// BuildSandboxes ends the sandboxes of a build.
type BuildSandboxes interface {
	EndSandboxes(ctx context.Context, p core.Principal, which func(*sandbox.State) bool)
}

// run is one execution of a build.
type run struct {
	principal core.Principal
	spec      build.Spec
	ring      *seal.Ring
	log       *slog.Logger
	builds    Builds
	templates Templates
	sandboxes BuildSandboxes

	record   *buildRecord
	resolver resolver
	executor executor
	layers   layers
}

// newRun returns the next execution of a build.
func (b *Builder) newRun(state build.State, spec build.Spec, p core.Principal) *run {
	cfg := &b.cfg
	r := &run{
		principal: p, spec: spec, ring: cfg.Sealer, log: cfg.Slog, builds: cfg.Builds, templates: cfg.Templates, sandboxes: cfg.Sandboxes,
		record: &buildRecord{builds: cfg.Builds, by: b.name, state: state},
	}
	r.resolver = resolver{
		record: r.record, principal: p, spec: &r.spec, templates: cfg.Templates, parts: cfg.Templates, bases: cfg.Bases,
		layers: cfg.Layers, credentials: cfg.Builds, registries: b.registries, keys: cfg.Keys, ring: cfg.Sealer,
	}
	r.executor = executor{record: r.record, principal: p, steps: len(spec.Steps), processes: cfg.Processes, files: cfg.Sandboxes, contexts: cfg.Builds}
	r.layers = layers{
		record: r.record, executor: &r.executor, principal: p, store: cfg.Layers, keys: cfg.Keys,
		provisioner: cfg.Provisioner, sandboxes: cfg.Sandboxes, log: cfg.Slog,
	}
	return r
}

// E2B's names for the phases before and after the steps.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

var (
	errFenced  = errors.New("the build was taken over by another gateway or deleted")
	errTooLong = kind.Newf(kind.Deadline, "build", "", "the build took longer than %s", buildTimeout)
)

// failure is the error of a failed build, and its step.
type failure struct {
	step string
	err  error
}

func (f *failure) Error() string { return f.step + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// atStep adds the step to err, unless it has one.
func atStep(step string, err error) error {
	if err == nil || stepOf(err) != "" {
		return err
	}
	return &failure{step, err}
}

// do runs the build to its end, or until ctx ends.
func (r *run) do(ctx context.Context) {
	ctx, cancel := context.WithDeadlineCause(ctx, r.record.current().Created.Add(buildTimeout), errTooLong)
	defer cancel()
	ctx, fence := context.WithCancelCause(ctx)
	defer fence(nil)
	var wg sync.WaitGroup
	wg.Go(func() { r.record.hold(ctx, fence) })
	err := r.buildRecovered(ctx)
	cause := context.Cause(ctx)
	fence(nil)
	wg.Wait()
	r.end(context.WithoutCancel(ctx), err, cause)
}

// buildRecovered is build with panics turned into failures: build parses untrusted images, registry
// answers and files. A panic would otherwise end one gateway after the other, as each takes
// the build over.
func (r *run) buildRecovered(ctx context.Context) error {
	return recovery.Do(r.log.With("build", r.record.current().ID), "build", func() error { return r.build(ctx) })
}

// endTimeout is the maximum time to record the end of a build.
const endTimeout = 10 * time.Second

// end records how the build ended; cause is the reason why its context ended, if it did.
func (r *run) end(ctx context.Context, err, cause error) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if errors.Is(cause, errFenced) {
		err = errFenced
	}
	if !errors.Is(err, errFenced) {
		err = r.record.append(ctx, r.endEvents(err, cause)...)
	}
	switch now := r.record.current(); {
	case errors.Is(err, errFenced):
		r.log.Warn("build taken over or deleted", "build", now.ID)
		if r.ended(ctx) {
			r.clean(ctx)
		}
	case err != nil:
		r.log.Warn("store end of build failed", "build", now.ID, "err", err)
	case now.Over():
		r.clean(ctx)
	}
}

// endEvents returns the events that record the end.
func (r *run) endEvents(err, cause error) []build.Body {
	switch {
	case err == nil:
		return []build.Body{build.Finished{}}
	case errors.Is(cause, errTooLong):
		err = atStep(stepOf(err), errTooLong)
	case cause != nil:
		return []build.Body{build.Claimed{}} // this gateway shuts down: another takes over
	}
	f := r.failed(err)
	return []build.Body{r.record.logged(build.Error, "Build failed: "+f.Message), f}
}

// ended reports whether the build has ended, so that no gateway owns what this run created
// after its end.
func (r *run) ended(ctx context.Context) bool {
	s := r.record.current()
	b, err := r.builds.Build(ctx, r.principal, s.Request.Template, s.ID)
	return err == nil && b.Over() || kind.Is(err, kind.NotFound) // it was deleted
}

// clean removes the leftovers of the build as far as possible; sandboxes also end at their
// deadline.
func (r *run) clean(ctx context.Context) {
	id := string(r.record.current().ID)
	r.sandboxes.EndSandboxes(ctx, r.principal, func(s *sandbox.State) bool { return s.Request.Build == id })
	if err := r.templates.PruneLayers(ctx, r.principal); err != nil {
		r.log.Warn("prune layers failed", "tenant", r.principal.Tenant, "err", err)
	}
}

func stepOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.step
	}
	return ""
}

func (r *run) failed(err error) build.Failed {
	text := kind.Message(err)
	if kind.Of(err) == kind.Internal {
		r.log.Error("build failed", "build", r.record.current().ID, "err", err)
	}
	return build.Failed{Step: stepOf(err), Message: text}
}

// build does the work: base, layers, start command, tags.
func (r *run) build(ctx context.Context) (err error) {
	s := r.record.current()
	if r.spec, err = r.spec.Open(r.ring, s.Tenant, s.ID); err != nil {
		return err
	}
	from, err := r.resolver.base(ctx)
	if err != nil {
		return atStep(stepBase, err)
	}
	layers, after, err := plan(&from, &r.spec, r.resolver.keys)
	if err != nil {
		return err
	}
	if from, err = r.steps(ctx, from, layers, after); err != nil {
		return err
	}
	if from.snap.ID != "" {
		if err := r.layers.store.KeepLayer(ctx, from.snap.ID); err != nil {
			return atStep(stepFinalize, err)
		}
	}
	b := &template.Built{
		ID: template.ID(s.Request.Template), Build: string(s.ID), Base: from.template, Snapshot: string(from.snap.ID),
		Env: after.env, User: after.user, Workdir: after.workdir, Start: after.start, Ready: after.ready,
		CPUMilli: s.Request.CPUMilli, MemoryMiB: s.Request.MemoryMiB,
	}
	if err := r.record.append(ctx, r.record.claim()); err != nil {
		return err // the template was deleted meanwhile, and must stay deleted
	}
	if b, err = b.Seal(r.ring, s.Tenant); err != nil {
		return err
	}
	if err := r.templates.TagBuilt(ctx, r.principal, s.Request.Name, s.Request.Tags, b); err != nil {
		return err
	}
	return r.record.logLine(ctx, "Build finished")
}

// steps builds the missing layers and runs the template's start command. It builds layers
// again that only one host had and that were lost meanwhile.
func (r *run) steps(ctx context.Context, base origin, layers []layer, after settings) (origin, error) {
	for {
		from, done, err := r.layers.newestLayer(ctx, base, layers)
		for ; err == nil && done < len(layers); done++ {
			from, err = r.layers.layer(ctx, from, &layers[done])
			err = atStep(layers[done].name(), err)
		}
		if err == nil {
			from.settings = after
			err = atStep(stepFinalize, r.finalize(ctx, from))
		}
		if !r.layers.dropHost(err, &base) {
			return from, err
		}
		if err := r.record.logLine(ctx, "The host of a layer cannot create a sandbox on it: building the layer again"); err != nil {
			return from, err
		}
	}
}

// finalize runs the template's start command once, to check that it becomes ready. It records
// that before the sandbox ends: a sandbox may end for many reasons.
func (r *run) finalize(ctx context.Context, from origin) error {
	n := len(r.spec.Steps) + 1
	if from.settings.start == "" && from.settings.ready == "" || int(r.record.mark().Step) >= n {
		return nil
	}
	if err := r.record.logLine(ctx, "[finalize] Starting the template's command and waiting for it"); err != nil {
		return err
	}
	sbx, err := r.layers.sandbox(ctx, from, from.settings, n)
	if err != nil {
		return err
	}
	if err := r.executor.start(ctx, sbx, &from.settings); err != nil {
		return err
	}
	mark := build.Mark{Step: uint32(n), Layers: r.record.mark().Layers}
	if err := r.record.log(ctx, mark, line(build.Info, "[finalize] The template's command was run")); err != nil {
		return err
	}
	r.layers.destroy(ctx, sbx)
	return nil
}
