package sandboxes

import (
	"cmp"
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/provision"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// Provisioner creates sandboxes.
type Provisioner interface {
	KeyedSandbox(ctx context.Context, p core.Principal, by provision.Idempotency) (st sandbox.State, ok bool, err error)
	CreateKeyedSandbox(ctx context.Context, p core.Principal, by provision.Idempotency, req sandbox.Requested) (sandbox.State, error)
	CreateSandbox(ctx context.Context, p core.Principal, req sandbox.Requested) (sandbox.State, error)
	ForkSandbox(ctx context.Context, p core.Principal, id sandbox.ID, count int, lifetime time.Duration) (forks []provision.Fork, memory bool, err error)
}

// Templates are the templates that a sandbox may start from.
type Templates interface {
	FromTemplate(ctx context.Context, p core.Principal, name string, req sandbox.Requested) (sandbox.Requested, error)
}

// Snapshots are the snapshots that a sandbox may start from.
type Snapshots interface {
	FindSnapshot(ctx context.Context, p core.Principal, ref string) (sandbox.Snapshot, error)
	FromOwn(s *sandbox.Snapshot, req sandbox.Requested) (sandbox.Requested, error)
}

// Volumes are the volumes that a sandbox may mount.
type Volumes interface {
	Mounts(ctx context.Context, p core.Principal, mounts []sandbox.Mount) ([]sandbox.Mount, string, error)
}

// Keys are the keys that identity tokens are signed with.
type Keys interface {
	EnsureSigningKey(ctx context.Context) error
}

// creator creates sandboxes.
type creator struct {
	provisioner Provisioner
	templates   Templates
	snapshots   Snapshots
	volumes     Volumes
	keys        Keys
	issuer      string
	limits      limits.Default
	timeout     maxTimeout
	networks    *networks
	bodies      *bodies
}

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
	hardEndBody
	recordingBody
	limits.Body
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// Generation is what differs between the two generations of the API.
type Generation struct {
	timeout time.Duration
	secure  bool // regardless of the request
}

// The two generations.
var (
	V1 = Generation{timeout: 15 * time.Second}
	V2 = Generation{timeout: 5 * time.Minute, secure: true}
)

// Create returns the handler of POST /sandboxes.
func (cr *creator) Create(def Generation) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var body newSandbox
		if err := wire.Decode(c, &body, true); err != nil {
			return err
		}
		by, err := record.Idempotency(c, &body)
		if err != nil {
			return err
		}
		st, ok, err := cr.provisioner.KeyedSandbox(c.UserContext(), auth.From(c), by)
		if err != nil {
			return err
		}
		if !ok {
			if st, err = cr.createNew(c, &body, def, by); err != nil {
				return notPlaced(c, err)
			}
		}
		return c.Status(fiber.StatusCreated).JSON(cr.bodies.sandbox(&st))
	}
}

// createNew creates the sandbox that the body describes. Without an idempotency key, the
// sandbox is stopped if the client closes the connection before the response.
func (cr *creator) createNew(c *fiber.Ctx, body *newSandbox, def Generation, by provision.Idempotency) (sandbox.State, error) {
	req, err := cr.requested(body, auth.From(c).Tenant, def)
	if err == nil {
		req, err = cr.root(c, body, req)
	}
	if err == nil {
		err = cr.mount(c, body, &req)
	}
	if err == nil {
		req.Identity, err = cr.identity(c, &body.IAM)
	}
	if err != nil {
		return sandbox.State{}, err
	}
	if by.Key != "" { // a retry of the request finds its sandbox
		return cr.provisioner.CreateKeyedSandbox(c.UserContext(), auth.From(c), by, req)
	}
	ctx, stop := httpconn.Connected(c)
	defer stop()
	return cr.provisioner.CreateSandbox(ctx, auth.From(c), req)
}

// root determines what the sandbox starts from, a template or a snapshot, and its
// limits.
func (cr *creator) root(c *fiber.Ctx, b *newSandbox, req sandbox.Requested) (sandbox.Requested, error) {
	p := auth.From(c)
	req.Alias, _ = p.OwnedName(b.TemplateID)
	from, err := cr.templates.FromTemplate(c.UserContext(), p, b.TemplateID, req)
	if err == nil {
		return from, b.Apply(&from, cr.limits)
	}
	snap, serr := cr.snapshots.FindSnapshot(c.UserContext(), p, b.TemplateID)
	switch {
	case kind.Is(serr, kind.NotFound):
		return req, err
	case serr != nil:
		return req, serr
	}
	if req, err = cr.snapshots.FromOwn(&snap, req); err != nil {
		return req, err
	}
	return req, b.Apply(&req, cr.limits)
}

func (cr *creator) requested(b *newSandbox, tenant string, def Generation) (sandbox.Requested, error) {
	if b.TemplateID == "" {
		return sandbox.Requested{}, wire.Invalid("templateID is required")
	}
	timeout, err := cr.timeout.parse(b.Timeout, def.timeout)
	memory := b.AutoPauseMemory == nil || *b.AutoPauseMemory
	wakes := b.AutoResume != nil && b.AutoResume.Enabled
	if err == nil && wakes && !memory {
		err = wire.Invalid("autoResume cannot be enabled with autoPauseMemory false: a sandbox without its memory is not resumed by traffic")
	}
	if err == nil && !memory && !b.AutoPause {
		err = wire.Invalid("autoPauseMemory false requires autoPause: without it the sandbox is killed at its timeout")
	}
	if err == nil {
		err = cmp.Or(checkMetadata(b.Metadata), checkEnv(b.EnvVars), b.MCP.check(), b.hardEndBody.check())
	}
	internet := b.AllowInternetAccess == nil || *b.AllowInternetAccess
	var network sandbox.Network
	if err == nil {
		network, err = cr.networks.parse(&b.Network, tenant, internet)
	}
	secure := def.secure || b.Secure != nil && *b.Secure
	if err == nil && network.Private && !secure {
		err = wire.Invalid("network.allowPublicTraffic false requires secure: the sandbox's files and processes would be open to any client with its id")
	}
	req := sandbox.Requested{
		Metadata:      b.Metadata,
		Defaults:      sandbox.Defaults{Env: b.EnvVars},
		Schedule:      sandbox.Schedule{Lifetime: timeout},
		Secure:        secure,
		AllowInternet: internet,
		Network:       network,
		OnTimeout:     onTimeout(b.AutoPause, memory),
		AutoResume:    wakes,
	}
	b.hardEndBody.apply(&req, time.Now())
	if err == nil {
		req.Recording, err = b.recordingBody.parse(b.Metadata)
	}
	return req, err
}

// Maximum sizes of a sandbox's metadata and environment, in bytes of keys and values.
const (
	maxMetadata = 64 << 10
	maxEnv      = 256 << 10
)

func checkMetadata(m map[string]string) error {
	if size(m) > maxMetadata {
		return wire.Invalid("metadata is larger than %d bytes", maxMetadata)
	}
	return nil
}

func checkEnv(m map[string]string) error {
	if size(m) > maxEnv {
		return wire.Invalid("envVars is larger than %d bytes", maxEnv)
	}
	return process.CheckEnv("decode", m)
}

func size(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
