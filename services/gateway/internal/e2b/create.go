package e2b

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/provision"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

// newSandbox is E2B's NewSandbox and NewSandboxV2.
type newSandbox struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int64            `json:"timeout"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	Secure              *bool             `json:"secure"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	AutoPause           bool              `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *autoResume       `json:"autoResume"`
	Network             networkBody       `json:"network"`
	VolumeMounts        []mountBody       `json:"volumeMounts"`
	MCP                 mcpBody           `json:"mcp"`
	IAM                 iamBody           `json:"iam"`
	limits.Body
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// defaults are the differences between the two generations.
type defaults struct {
	timeout time.Duration
	secure  bool // regardless of the request
}

var (
	defaultsV1 = defaults{timeout: 15 * time.Second}
	defaultsV2 = defaults{timeout: 5 * time.Minute, secure: true}
)

func (h *Handler) create(def defaults) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var body newSandbox
		if err := wire.Decode(c, &body, true); err != nil {
			return err
		}
		by, err := idempotency(c, &body)
		if err != nil {
			return err
		}
		st, ok, err := h.ops.Provisioner.KeyedSandbox(c.UserContext(), auth.From(c), by)
		if err != nil {
			return err
		}
		if !ok {
			if st, err = h.createNew(c, &body, def, by); err != nil {
				return notPlaced(c, err)
			}
		}
		return c.Status(fiber.StatusCreated).JSON(h.sandbox(&st))
	}
}

// createNew creates the sandbox that the body describes. Without an idempotency key, the
// sandbox is stopped if the client closes the connection before the response.
func (h *Handler) createNew(c *fiber.Ctx, body *newSandbox, def defaults, by provision.Idempotency) (sandbox.State, error) {
	req, err := h.requested(body, def)
	if err == nil {
		req, err = h.root(c, body, req)
	}
	if err == nil {
		err = h.mount(c, body, &req)
	}
	if err == nil {
		req.Identity, err = h.identity(c, &body.IAM)
	}
	if err != nil {
		return sandbox.State{}, err
	}
	if by.Key != "" { // a retry of the request finds its sandbox
		return h.ops.Provisioner.CreateKeyedSandbox(c.UserContext(), auth.From(c), by, req)
	}
	ctx, stop := httpconn.Connected(c)
	defer stop()
	return h.ops.Provisioner.CreateSandbox(ctx, auth.From(c), req)
}

// root determines what the sandbox starts from, a template or a snapshot, and its
// limits.
func (h *Handler) root(c *fiber.Ctx, b *newSandbox, req sandbox.Requested) (sandbox.Requested, error) {
	p := auth.From(c)
	req.Alias, _ = p.OwnedName(b.TemplateID)
	from, err := h.ops.Templates.FromTemplate(c.UserContext(), p, b.TemplateID, req)
	if err == nil {
		return from, b.Apply(&from, h.cfg.Limits)
	}
	snap, serr := h.ops.Snapshots.FindSnapshot(c.UserContext(), p, b.TemplateID)
	switch {
	case kind.Is(serr, kind.NotFound):
		return req, err
	case serr != nil:
		return req, serr
	}
	req = snapshots.FromOwnSnapshot(&snap, req)
	return req, b.Apply(&req, h.cfg.Limits)
}

func (h *Handler) requested(b *newSandbox, def defaults) (sandbox.Requested, error) {
	if b.TemplateID == "" {
		return sandbox.Requested{}, wire.Invalid("templateID is required")
	}
	timeout, err := h.lifetime(b.Timeout, def.timeout)
	memory := b.AutoPauseMemory == nil || *b.AutoPauseMemory
	wakes := b.AutoResume != nil && b.AutoResume.Enabled
	if err == nil && wakes && !memory {
		err = wire.Invalid("autoResume cannot be enabled with autoPauseMemory false: a sandbox without its memory is not resumed by traffic")
	}
	if err == nil && !memory && !b.AutoPause {
		err = wire.Invalid("autoPauseMemory false requires autoPause: without it the sandbox is killed at its timeout")
	}
	if err == nil {
		err = checkMetadata(b.Metadata)
	}
	if err == nil {
		err = checkEnv(b.EnvVars)
	}
	if err == nil {
		err = b.MCP.check()
	}
	internet := b.AllowInternetAccess == nil || *b.AllowInternetAccess
	var network sandbox.Network
	if err == nil {
		network, err = h.network(&b.Network, internet)
	}
	secure := def.secure || b.Secure != nil && *b.Secure
	if err == nil && network.Private && !secure {
		err = wire.Invalid("network.allowPublicTraffic false requires secure: the sandbox's files and processes would be open to any client with its id")
	}
	req := sandbox.Requested{
		Metadata:      b.Metadata,
		Env:           b.EnvVars,
		Lifetime:      timeout,
		Secure:        secure,
		AllowInternet: internet,
		Network:       network,
		OnTimeout:     onTimeout(b.AutoPause, memory),
		AutoResume:    wakes,
	}
	return req, err
}
