package sandboxes

import (
	"cmp"
	"context"
	"debug/elf"
	"maps"
	"os"
	"strings"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// sandboxFiles is what a sandbox is created from.
type sandboxFiles struct {
	sb *hostSandbox

	tree         *templates.Tree // nil: the host's own files
	snapshotTree *templates.Tree // the snapshot that it is based on, from the store; nil: none, or a snapshot of this host
}

// spec returns the driver's spec for creating the sandbox.
func (fs *sandboxFiles) spec() driver.Spec {
	s := fs.sb.cfg.Instances.Spec(fs.sb.id, &fs.sb.req)
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
	ctx, cancel := fs.sb.untilStop(ctx)
	defer cancel()
	t, ok, err := catalog.Find(ctx, fs.sb.cfg.View, func() (catalog.Template, bool) { return fs.sb.cfg.View.TemplateByID(id) })
	if err != nil {
		return err
	}
	if !ok {
		return noTemplate(fs.sb.req.Template)
	}
	fs.tree, err = fs.sb.cfg.Templates.Get(ctx, &t)
	return err
}

// checkLoader fails if the shim cannot run in the sandbox's template: a dynamically linked one
// needs the template to have its loader.
func (fs *sandboxFiles) checkLoader() error {
	if fs.tree == nil {
		return nil
	}
	shim, err := elf.Open(fs.sb.cfg.Shim.Program()[0])
	if err != nil {
		return err
	}
	defer shim.Close()
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
	defer root.Close()
	if _, err := root.Lstat(loader); err == nil { // which may be an absolute link
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
	tree, ok := fs.sb.cfg.Cache.Hold(id)
	if ok {
		fs.tree = tree
	}
	return ok
}

// openSpool opens the file in which the sandbox's shim keeps output that is not stored yet. nil:
// shims keep all in memory.
func (sb *hostSandbox) openSpool() (*os.File, error) {
	return sb.cfg.Spool(sb.cfg.Instances.Dir(sb.current.Name()))
}

// newNetwork returns the network of the sandbox.
func (sb *hostSandbox) newNetwork(used sandbox.NetworkUsed) *network.Sandbox {
	return sb.cfg.Network.Sandbox(network.SandboxConfig{
		ID: sb.id, Tenant: sb.tenant, Template: cmp.Or(sb.req.Built, sb.req.Template), Identity: &sb.req.Identity, Used: used,
		Isolation: func() sandbox.Isolation { return sb.created.Isolation }, Instance: sb.current.Instance,
	})
}
