package hostd

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	templatesDir  = "templates"
	prefetchPause = 2 * time.Second // between two checks for templates to prefetch
)

// sandboxFiles is what a sandbox is created from.
type sandboxFiles struct {
	sb *hostSandbox

	tree         *templates.Tree // nil: the host's own files
	snapshotTree *templates.Tree // the snapshot that it is based on, from the store; nil: none, or a snapshot of this host
}

// templateStore has the templates of this host, and fetches them ahead of their use.
type templateStore struct {
	h *host

	cache *templates.Cache
}

func openTemplates(cfg *Config) (*templates.Cache, error) {
	return templates.Open(templates.Config{
		Dir: filepath.Join(cfg.DataDir, templatesDir), Source: cfg.Log, Copies: cfg.Log.CopyStore(), Max: cfg.TemplateCache, Log: cfg.Slog,
		Sudo: func(ctx context.Context) (string, error) { return sudoProgram(ctx, cfg.Slog) },
	})
}

// sudoProgram returns the path of the small shim, which is also sudo and static, or of this
// program where the small one cannot be built.
func sudoProgram(ctx context.Context, log *slog.Logger) (string, error) {
	if path, err := helperbin.Shim().FindSame(); err == nil {
		return path, nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if path, err := helperbin.Shim().BuildSame(ctx, log.Info); err == nil {
		return path, nil
	}
	return os.Executable()
}

// spec returns the driver's spec for creating the sandbox.
func (fs *sandboxFiles) spec() driver.Spec {
	s := fs.sb.h.instances.Spec(fs.sb.id, &fs.sb.req)
	s.Sudo = template.IsHost(fs.sb.req.Template)
	user, workdir := fs.sb.req.User, fs.sb.req.Workdir
	if fs.tree != nil {
		m := &fs.tree.Manifest
		s.Root, s.Sudo = fs.tree.Root, m.Sudo
		user, workdir = cmp.Or(user, m.User, template.DefaultUser), cmp.Or(workdir, m.Workdir)
	}
	if user != "" {
		s.ShimArgs = append(s.ShimArgs, "-user", user)
	}
	if workdir != "" {
		s.ShimArgs = append(s.ShimArgs, "-workdir", workdir)
	}
	return s
}

// env returns the environment of every process of the sandbox: the template's, the sandbox's own,
// and its identity.
func (fs *sandboxFiles) env() map[string]string {
	env := make(map[string]string)
	if fs.tree != nil {
		maps.Copy(env, fs.tree.Manifest.Env)
	}
	maps.Copy(env, fs.sb.req.Env)
	maps.Copy(env, sandbox.IdentityEnv(fs.sb.id, &fs.sb.req))
	return env
}

// ensureTemplate makes the sandbox's template available on this host and fetches it if it is
// missing. It ends early when the sandbox must end.
func (fs *sandboxFiles) ensureTemplate(ctx context.Context) error {
	if template.IsHost(fs.sb.req.Template) || fs.hold() {
		return nil
	}
	id, err := template.ParseID(fs.sb.req.Template)
	if err != nil {
		return noTemplate(fs.sb.req.Template)
	}
	t, ok := fs.sb.h.view.TemplateByID(id)
	if !ok {
		return noTemplate(fs.sb.req.Template)
	}
	ctx, cancel := fs.sb.untilStop(ctx)
	defer cancel()
	fs.tree, err = fs.sb.h.templates.get(ctx, &t)
	return err
}

// checkLoader fails if the shim cannot run in the sandbox's template: a dynamically linked one
// needs the template to have its loader.
func (fs *sandboxFiles) checkLoader() error {
	if fs.tree == nil {
		return nil
	}
	shim, err := elf.Open(fs.sb.h.shim.Program()[0])
	if err != nil {
		return err
	}
	defer shim.Close() //nolint:errcheck // it was only read
	interp := shim.Section(".interp")
	if interp == nil {
		return nil
	}
	name, err := interp.Data()
	if err != nil {
		return err
	}
	loader := strings.Trim(string(name), "/\x00")
	root, err := os.OpenRoot(fs.tree.Root)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it was only read
	if _, err := root.Stat(loader); err == nil {
		return nil
	}
	return kind.Newf(kind.Precondition, "create", string(fs.sb.id), "the template has no /%s, which the host's shim is linked with: "+
		"put a static one beside the host's program (CGO_ENABLED=0 go build ./services/hostd/cmd/%s)", loader, helperbin.Shim().Name)
}

func noTemplate(name string) error {
	return kind.Newf(kind.NotFound, "create", "", "template '%s' not found", name)
}

// hold takes a reference to the sandbox's template if it is here. The template of a sandbox from
// a previous run always is.
func (fs *sandboxFiles) hold() bool {
	id, err := template.ParseID(fs.sb.req.Template)
	if err != nil {
		return false
	}
	tree, ok := fs.sb.h.templates.cache.Hold(id)
	if ok {
		fs.tree = tree
	}
	return ok
}

func (ts *templateStore) get(ctx context.Context, t *events.Template) (*templates.Tree, error) {
	raw, _, err := t.Manifest.Encode()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	tree, err := ts.cache.Get(ctx, raw)
	if err == nil && time.Since(begun) > time.Second {
		ts.h.slog.Info("template fetched", "template", t.Name+":"+t.Tag, "id", t.ID, "mib", t.Manifest.Size>>20, "took", time.Since(begun).Round(time.Millisecond))
	}
	return tree, err
}

// run fetches templates before they are needed, as long as there is space for them without
// removing others.
func (ts *templateStore) run(ctx context.Context) error {
	changed, stop := ts.h.view.Changes()
	defer stop()
	tried := make(map[template.ID]time.Time) // the tag's time
	for {
		for _, t := range ts.h.view.Templates("") {
			if !t.Tagged.After(tried[t.ID]) || t.Manifest.Arch != runtime.GOARCH || !ts.lacks(t.ID, &t.Manifest) {
				continue
			}
			tried[t.ID] = t.Tagged // a failed one is retried when it is needed, or tagged again
			tree, err := ts.get(ctx, &t)
			if err != nil && !errors.Is(err, context.Canceled) {
				ts.h.slog.Warn("prefetch template failed", "template", t.ID, "err", err)
			}
			tree.Release()
		}
		ts.prefetchBuilt(ctx, tried)
		if !waiting.Sleep(ctx, prefetchPause) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// lacks reports whether a template should be prefetched: it is missing, and fits on the disk
// without an eviction.
func (ts *templateStore) lacks(id template.ID, m *template.Manifest) bool {
	return ts.cache.Lacks(id, m, int64(disk.SpaceOf(ts.h.cfg.DataDir).Margin()))
}

// prefetchBuilt is prefetch of the templates that builds made.
func (ts *templateStore) prefetchBuilt(ctx context.Context, tried map[template.ID]time.Time) {
	for _, t := range ts.h.view.Templates("") {
		if t.Built == nil {
			continue
		}
		s, ok := ts.h.view.Snapshot(sandbox.SnapshotID(t.Built.Snapshot))
		if _, own := ts.h.snapshots.Own(&s); !ok || own || s.Deleted || s.Copy.Manifest == "" || s.Copy.Wanted || !ts.h.snapshots.CanUse(&s) {
			continue
		}
		m, id, err := template.Decode([]byte(s.Copy.Manifest))
		if err != nil || !t.Tagged.After(tried[id]) || !ts.lacks(id, &m) {
			continue
		}
		tried[id] = t.Tagged
		tree, err := ts.cache.Get(ctx, []byte(s.Copy.Manifest))
		if err != nil && ctx.Err() == nil {
			ts.h.slog.Warn("prefetch built template failed", "template", t.Name, "err", err)
		}
		tree.Release()
	}
}

// names returns the templates from which a sandbox can be created without a fetch.
func (ts *templateStore) names() []string {
	out := []string{template.Host, template.Base}
	for _, id := range ts.cache.Have() {
		out = append(out, string(id))
	}
	return out
}
