package builder

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// run is one execution of a build.
type run struct {
	*Builder
	principal   core.Principal
	spec        build.Spec
	bytes       int             // of output that this run logged
	failedHosts map[string]bool // hosts that failed to create a sandbox on a layer that only they have

	mu         sync.Mutex
	state      build.State // guarded by mu; see current
	lastAppend time.Time   // time of the last append to the record
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
	ctx, cancel := context.WithDeadlineCause(ctx, r.current().Created.Add(buildTimeout), errTooLong)
	defer cancel()
	ctx, fence := context.WithCancelCause(ctx)
	defer fence(nil)
	var wg sync.WaitGroup
	wg.Go(func() { r.hold(ctx, fence) })
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
	return recovery.Do(r.cfg.Slog.With("build", r.current().ID), "build", func() error { return r.build(ctx) })
}

// current returns the state of the build's record; hold may append to it at any time.
func (r *run) current() build.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// hold renews the claim on the build until ctx ends or another gateway takes it over.
func (r *run) hold(ctx context.Context, fence context.CancelCauseFunc) {
	t := time.NewTicker(claimInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r.mu.Lock()
		recent := time.Since(r.lastAppend) < claimInterval
		r.mu.Unlock()
		if recent {
			continue
		}
		if err := r.append(ctx, build.Claimed{By: r.name}); errors.Is(err, errFenced) {
			fence(err)
			return
		}
	}
}

// append appends to the build's record. It returns errFenced if another gateway did.
func (r *run) append(ctx context.Context, bodies ...build.Body) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	state, err := r.cfg.Ops.Builds.AppendBuild(ctx, &r.state, bodies...)
	if kind.Is(err, kind.Conflict) {
		return errFenced
	}
	if err == nil {
		r.state, r.lastAppend = state, time.Now()
	}
	return err
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
		err = r.append(ctx, r.endEvents(err, cause)...)
	}
	switch now := r.current(); {
	case errors.Is(err, errFenced):
		r.cfg.Slog.Warn("build taken over or deleted", "build", now.ID)
		if r.ended(ctx) {
			r.clean(ctx)
		}
	case err != nil:
		r.cfg.Slog.Warn("store end of build failed", "build", now.ID, "err", err)
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
	return []build.Body{r.logged(build.Error, "Build failed: "+f.Message), f}
}

// ended reports whether the build has ended, so that no gateway owns what this run created
// after its end.
func (r *run) ended(ctx context.Context) bool {
	s := r.current()
	b, err := r.cfg.Ops.Builds.Build(ctx, r.principal, s.Request.Template, s.ID)
	return err == nil && b.Over() || kind.Is(err, kind.NotFound) // it was deleted
}

// clean removes the leftovers of the build as far as possible; sandboxes also end at their
// deadline.
func (r *run) clean(ctx context.Context) {
	id := string(r.current().ID)
	r.cfg.Ops.Lifecycle.EndSandboxes(ctx, r.principal, func(s *sandbox.State) bool { return s.Request.Build == id })
	if err := r.cfg.Ops.Templates.PruneLayers(ctx, r.principal); err != nil {
		r.cfg.Slog.Warn("prune layers failed", "tenant", r.principal.Tenant, "err", err)
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
		r.cfg.Slog.Error("build failed", "build", r.current().ID, "err", err)
	}
	return build.Failed{Step: stepOf(err), Message: text}
}

// build does the work: base, layers, start command, tags.
func (r *run) build(ctx context.Context) error {
	from, err := r.base(ctx)
	if err != nil {
		return atStep(stepBase, err)
	}
	layers, after, err := plan(&from, &r.spec)
	if err != nil {
		return err
	}
	if from, err = r.steps(ctx, from, layers, after); err != nil {
		return err
	}
	if from.snap.ID != "" {
		if err := r.cfg.Ops.Snapshots.KeepLayer(ctx, from.snap.ID); err != nil {
			return atStep(stepFinalize, err)
		}
	}
	s := r.current()
	b := &template.Built{
		ID: template.ID(s.Request.Template), Build: string(s.ID), Base: from.template, Snapshot: string(from.snap.ID),
		Env: after.env, User: after.user, Workdir: after.workdir, Start: after.start, Ready: after.ready,
		CPUMilli: s.Request.CPUMilli, MemoryMiB: s.Request.MemoryMiB,
	}
	if err := r.append(ctx, build.Claimed{By: r.name}); err != nil {
		return err // the template was deleted meanwhile, and must stay deleted
	}
	if err := r.cfg.Ops.Templates.TagBuilt(ctx, r.principal, s.Request.Name, s.Request.Tags, b); err != nil {
		return err
	}
	return r.logLine(ctx, "Build finished")
}

// steps builds the missing layers and runs the template's start command. It builds layers
// again that only one host had and that were lost meanwhile.
func (r *run) steps(ctx context.Context, base origin, layers []layer, after settings) (origin, error) {
	for {
		from, done, err := r.newestLayer(ctx, base, layers)
		for ; err == nil && done < len(layers); done++ {
			from, err = r.layer(ctx, from, &layers[done])
			err = atStep(layers[done].name(), err)
		}
		if err == nil {
			from.settings = after
			err = atStep(stepFinalize, r.finalize(ctx, from))
		}
		if !r.dropHost(err, &base) {
			return from, err
		}
		if err := r.logLine(ctx, "The host of a layer cannot create a sandbox on it: building the layer again"); err != nil {
			return from, err
		}
	}
}

// dropHost excludes the host in err, and reports whether the build can continue without its layers.
func (r *run) dropHost(err error, base *origin) bool {
	var u *sandboxError
	if !errors.As(err, &u) || u.on.ID == base.snap.ID || r.failedHosts[u.on.Host] {
		return false
	}
	if now, ok := r.cfg.Ops.Snapshots.LayerOf(u.on.ID); ok && now.Copy.Manifest != "" {
		return false // other hosts can load it
	}
	if r.failedHosts == nil {
		r.failedHosts = map[string]bool{}
	}
	r.failedHosts[u.on.Host] = true
	return true
}

// usable reports whether a layer is in the store, or on a host that has not failed.
func (r *run) usable(s *sandbox.Snapshot) bool {
	return s.Copy.Manifest != "" || !r.failedHosts[s.Host]
}

// maxTitle is the maximum number of bytes of a step in its title.
const maxTitle = 2048

// title returns the log line at the start of a step.
func (r *run) title(l *layer) string {
	if l.step == packagesStep {
		return "[base] Installing sudo, curl, ca-certificates, git and jq if they are missing"
	}
	title := "WORKDIR"
	if n := len(l.dirs); l.do == nil && l.dirs[n-1].path == "" {
		title = "USER"
	}
	if l.do != nil {
		title = l.do.Type + " " + l.do.Args[0]
		if l.do.Type == build.Copy {
			title += " " + l.do.Args[1]
		}
	}
	return r.prefix(l) + " " + title[:min(len(title), maxTitle)]
}

// prefix returns the start of each log line about a layer.
func (r *run) prefix(l *layer) string {
	if l.step == packagesStep {
		return "[base]"
	}
	return fmt.Sprintf("[builder %d/%d]", l.step, len(r.spec.Steps))
}

// layer builds a layer on another, unless an equal one exists. It records the layer that it
// chooses and then claims it, so that PruneLayers leaves it alone from then on.
func (r *run) layer(ctx context.Context, from origin, l *layer) (origin, error) {
	for begun := l.step != packagesStep && int(r.mark().Step) >= l.step; ; begun = false {
		own, _ := r.layerID(l.step)
		snap, ok := r.cfg.Ops.Snapshots.LayerOf(own)
		title := r.title(l)
		if !ok && !l.force {
			if snap, ok = r.cfg.Ops.Snapshots.Layer(r.principal, l.sum, r.usable); ok {
				title = "CACHED " + title
			}
		}
		mark, lines := r.mark(), []build.Line(nil)
		if !begun {
			mark, lines = build.Mark{Step: uint32(l.step)}, append(lines, r.line(build.Info, title))
		}
		mark.Layers = layersToKeep(from, snap.ID)
		if err := r.log(ctx, mark, lines...); err != nil {
			return from, err
		}
		var err error
		if ok {
			snap, err = r.cfg.Ops.Snapshots.ClaimLayer(ctx, snap.ID)
			if kind.Is(err, kind.NotFound) {
				continue // dropped meanwhile: reuse another or build it
			}
		} else {
			snap, err = r.make(ctx, from, l)
		}
		if err != nil {
			return from, err
		}
		// The previous owner may have used another template, whose tag has moved since.
		from.snap, from.template = snap, snap.Template
		return from, nil
	}
}

// newestLayer returns the newest layer in the build's record, and how many of the layers it
// includes: layers below the newest may have been dropped and are not needed.
func (r *run) newestLayer(ctx context.Context, from origin, layers []layer) (origin, int, error) {
	for n := len(layers); n > 0; n-- {
		snap, ok := r.cfg.Ops.Snapshots.LayerAmong(r.mark().Layers, layers[n-1].sum)
		if !ok || !r.usable(&snap) {
			continue
		}
		snap, err := r.cfg.Ops.Snapshots.ClaimLayer(ctx, snap.ID)
		if kind.Is(err, kind.NotFound) {
			continue
		}
		from.snap, from.template = snap, snap.Template
		return from, n, err
	}
	return from, 0, nil
}

// layersToKeep returns the layers to keep while one is built on another; the new one may not exist
// yet.
func layersToKeep(on origin, id sandbox.SnapshotID) []string {
	var ids []string
	for _, id := range []sandbox.SnapshotID{on.snap.ID, id} {
		if id != "" {
			ids = append(ids, string(id))
		}
	}
	return ids
}

// layerID returns the id of the layer that the build makes of a step, and how many it made before
// that were dropped or are unusable.
func (r *run) layerID(step int) (id sandbox.SnapshotID, dropped int) {
	for what := "layer"; ; what = "layer." + strconv.Itoa(dropped) {
		id = sandbox.KeyedSnapshotID(r.key(what, step))
		if s, ok := r.cfg.Ops.Snapshots.LayerOf(id); ok && r.usable(&s) || !ok && !s.Deleted {
			return id, dropped
		}
		dropped++
	}
}

// key derives a key for the build's n-th object of a kind.
func (r *run) key(what string, n int) string {
	return r.cfg.Ops.Core.DeriveKey("build." + string(r.current().ID) + "." + what + "." + strconv.Itoa(n))
}

// make builds a layer in a sandbox of its own, which is kept until the layer exists: a
// successor needs it, and clean ends it if the build fails.
func (r *run) make(ctx context.Context, from origin, l *layer) (snap sandbox.Snapshot, err error) {
	sbx, err := r.sandbox(ctx, from, l.settings, l.step)
	if err != nil {
		return snap, err
	}
	for _, dir := range l.dirs {
		if err := r.makeDir(ctx, sbx, dir); err != nil {
			return snap, atStep(strconv.Itoa(dir.step), err)
		}
	}
	if l.do != nil {
		do := r.command
		switch {
		case l.step == packagesStep:
			do = r.packages
		case l.do.Type == build.Copy:
			do = r.copy
		}
		if err := do(ctx, sbx, l); err != nil {
			return snap, err
		}
	}
	if snap, err = r.saveLayer(ctx, sbx, from, l); err != nil {
		return snap, err
	}
	r.destroy(ctx, sbx)
	return snap, nil
}

// finalize runs the template's start command once, to check that it becomes ready. It records
// that before the sandbox ends: a sandbox may end for many reasons.
func (r *run) finalize(ctx context.Context, from origin) error {
	n := len(r.spec.Steps) + 1
	if from.settings.start == "" && from.settings.ready == "" || int(r.mark().Step) >= n {
		return nil
	}
	if err := r.logLine(ctx, "[finalize] Starting the template's command and waiting for it"); err != nil {
		return err
	}
	sbx, err := r.sandbox(ctx, from, from.settings, n)
	if err != nil {
		return err
	}
	if err := r.start(ctx, sbx, &from.settings); err != nil {
		return err
	}
	mark := build.Mark{Step: uint32(n), Layers: r.mark().Layers}
	if err := r.log(ctx, mark, r.line(build.Info, "[finalize] The template's command was run")); err != nil {
		return err
	}
	r.destroy(ctx, sbx)
	return nil
}

// start runs the template's start command, and waits until it is ready.
func (r *run) start(ctx context.Context, sbx sandbox.ID, f *settings) error {
	if f.start != "" {
		if err := r.cfg.Ops.Procs.RunStartCommand(ctx, r.principal, sbx, f.start); err != nil {
			return ofCommand(f.start, err)
		}
	}
	if f.ready == "" {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := r.cfg.Ops.Procs.AwaitReady(waiting, r.principal, sbx, f.ready)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return kind.Newf(kind.Deadline, "build", "", "the template's command was not ready within %s", readyWithin)
	}
	if kind.Is(err, kind.Precondition) {
		return ofCommand(f.start, err)
	}
	return err
}

// readyWithin is the maximum time until the template's start command is ready.
const readyWithin = 5 * time.Minute
