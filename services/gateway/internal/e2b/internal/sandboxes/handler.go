package sandboxes

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
)

// Lifecycle are the sandboxes that exist.
type Lifecycle interface {
	Lookup(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	SetDeadline(ctx context.Context, p core.Principal, id sandbox.ID, deadline time.Time, extendOnly bool) (sandbox.State, error)
	SetNetwork(ctx context.Context, p core.Principal, id sandbox.ID, n sandbox.Network) error
	PauseSandbox(ctx context.Context, p core.Principal, id sandbox.ID, files bool) error
	ResumeSandbox(ctx context.Context, p core.Principal, id sandbox.ID, opt lifecycle.ResumeOptions) (st sandbox.State, resumed bool, err error)
	DestroySandbox(ctx context.Context, p core.Principal, id sandbox.ID) error
}

// View is what the gateway has read of the log.
type View interface {
	Sync(ctx context.Context) error
}

// Config configures a [Handler]. All interfaces are required.
type Config struct {
	Lifecycle   Lifecycle
	View        View
	Provisioner Provisioner
	Templates   Templates
	Snapshots   Snapshots
	Volumes     Volumes
	Keys        Keys
	Tokens      Tokens
	Hosts       Hosts
	Sealer      *seal.Ring // seals secrets in networks

	Domain     string           // domain of sandboxes' hosts; empty: null
	Issuer     string           // URL of the issuer of identity tokens; empty: no tokens
	MaxTimeout time.Duration    // maximum timeout of a sandbox
	Limits     limits.Default   // of a sandbox that requests none
	Operator   sandbox.Operator // allows proxies on non-public addresses
}

// Handler serves sandboxes.
type Handler struct {
	creator

	lifecycle Lifecycle
	view      View
	timeout   maxTimeout
	networks  *networks
	bodies    *bodies
}

// New returns a handler.
func New(cfg Config) *Handler {
	ns := &networks{cfg.Sealer, cfg.Operator}
	bs := &bodies{tokens: cfg.Tokens, hosts: cfg.Hosts, networks: ns}
	if cfg.Domain != "" {
		bs.domain = &cfg.Domain
	}
	timeout := maxTimeout(cfg.MaxTimeout)
	return &Handler{
		creator: creator{
			provisioner: cfg.Provisioner, templates: cfg.Templates, snapshots: cfg.Snapshots, volumes: cfg.Volumes, keys: cfg.Keys,
			issuer: cfg.Issuer, limits: cfg.Limits, timeout: timeout, networks: ns, bodies: bs,
		},
		lifecycle: cfg.Lifecycle, view: cfg.View, timeout: timeout, networks: ns, bodies: bs,
	}
}
