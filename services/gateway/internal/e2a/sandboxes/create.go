package sandboxes

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/provision"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// created is the body of a create. HostPort is the port in <port>-<id>.<domain>, under which the
// gateway reaches the runtime of a conversation.
type created struct {
	ID       string `json:"vm_id"`
	State    string `json:"state"`
	HostPort int    `json:"host_port"`
}

// create serves POST /v1/sandboxes.
func (h *Handler) create(c *fiber.Ctx) error {
	r, err := decode(c)
	if err != nil {
		return err
	}
	by, err := record.Idempotency(c, &r)
	if err != nil {
		return err
	}
	st, ok, err := h.Provisioner.KeyedSandbox(c.UserContext(), auth.From(c), by)
	if err == nil && !ok {
		st, err = h.createNew(c, &r, by)
	}
	if err == nil {
		err = h.startDesktop(c, &r, &st, by.Key != "")
	}
	if err == nil && r.Agent != "" && st.IsRunning() {
		err = h.Workspaces.Mount(c.UserContext(), &st)
	}
	if err == nil {
		err = h.startAgent(c, &r, &st, by.Key != "")
	}
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusCreated, created{vmid.Of(st.ID), stateOf(&st), bootstrap.Port})
}

// createNew creates the sandbox of a request. Without an idempotency key, the sandbox is stopped if
// the client closes the connection before the response.
func (h *Handler) createNew(c *fiber.Ctx, r *request, by provision.Idempotency) (sandbox.State, error) {
	req, err := h.requested(c.UserContext(), auth.From(c), r)
	if err == nil {
		err = h.Credits.Afford(c.UserContext(), auth.From(c).Tenant)
	}
	if err != nil {
		return sandbox.State{}, err
	}
	ctx, stop := c.UserContext(), func() {}
	if by.Key == "" {
		ctx, stop = httpconn.Connected(c)
	}
	defer stop()
	return h.Provisioner.CreateKeyedSandbox(ctx, auth.From(c), by, req)
}

// requested validates a request and returns what it asks for.
func (h *Handler) requested(ctx context.Context, p core.Principal, r *request) (sandbox.Requested, error) {
	if err := r.check(); err != nil {
		return sandbox.Requested{}, err
	}
	if r.PersistenceURL != "" {
		if err := h.Outbound.Check(ctx, "persistence_url", r.PersistenceURL); err != nil {
			return sandbox.Requested{}, err
		}
	}
	metadata, names, err := r.metadata(p.Tenant)
	if err == nil {
		err = r.supported()
	}
	if err != nil {
		return sandbox.Requested{}, err
	}
	backend, err := sandbox.SealPersistence(h.Sealer, p.Tenant, r.PersistenceURL, r.PersistenceAuth)
	if err != nil {
		return sandbox.Requested{}, err
	}
	req := sandbox.Requested{
		Metadata: metadata, JSON: names, Defaults: sandbox.Defaults{Env: r.EnvVars}, Schedule: r.schedule(h.Now()),
		Secure: true, AllowInternet: true, Network: sandbox.Network{Internet: true}, Alias: r.Template,
		E2A: sandbox.E2A{App: r.app(), Persistence: backend},
	}
	if req, err = h.root(ctx, p, r.Template, req); err != nil {
		return req, err
	}
	size := sizes[r.Template]
	req.CPUMilli, req.MemoryMiB = size.CPUMilli, size.MemoryMiB
	return req, new(limits.Body).Apply(&req, h.Limits)
}

// standard is the template that needs no template of its name.
const standard = "standard"

// sizes are the templates and the resources of their sandboxes.
var sizes = map[string]sandbox.Resources{
	standard:  {CPUMilli: 500, MemoryMiB: 512},
	"browser": {CPUMilli: 1000, MemoryMiB: 1024},
	"cua":     {CPUMilli: 1000, MemoryMiB: 2048},
	"canvas":  {CPUMilli: 1000, MemoryMiB: 1024},
}

// root sets what the sandbox starts from: the template of the name, or for standard the host's
// own files.
func (h *Handler) root(ctx context.Context, p core.Principal, name string, req sandbox.Requested) (sandbox.Requested, error) {
	from, err := h.Templates.FromTemplate(ctx, p, name, req)
	switch {
	case !kind.Is(err, kind.NotFound):
		return from, err
	case name == standard:
		return h.Templates.FromTemplate(ctx, p, template.Base, req)
	}
	return req, kind.Coded(kind.Unavailable, "create sandbox", "", "template_not_built", "the template "+name+" is not built: run millrace template build "+name)
}
