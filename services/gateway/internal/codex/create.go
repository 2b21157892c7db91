package codex

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	defaultTemplate = "base"
	defaultTimeout  = time.Hour
	// createTimeout is how long initialize waits for a sandbox: clients wait 10 s. After it, a
	// repeated initialize waits for the same sandbox.
	createTimeout = 8 * time.Second
)

// Creator creates sandboxes.
type Creator interface {
	// Requested returns the request for a sandbox of a template with a lifetime.
	Requested(ctx context.Context, p core.Principal, template string, lifetime time.Duration) (sandbox.Requested, error)
	// Ensure creates a sandbox with an id that only the caller has, or waits for it.
	Ensure(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) error
}

// inNew serves a session in a sandbox of its own.
func (h *Handler) inNew(c *fiber.Ctx) error {
	p := auth.From(c)
	policy, err := policyOf(c)
	if err == nil {
		err = p.MayCreate()
	}
	lifetime := defaultTimeout
	if err == nil {
		lifetime, err = seconds(c, "timeout", min(defaultTimeout, h.cfg.MaxTimeout), h.cfg.MaxTimeout)
	}
	var req sandbox.Requested
	if err == nil {
		req, err = h.cfg.Creator.Requested(c.UserContext(), p, cmp.Or(strings.Clone(c.Query("template")), defaultTemplate), lifetime)
	}
	if err != nil {
		return err
	}
	o := &creating{h: h, p: p, policy: policy, id: sandbox.NewID(), req: req}
	return h.serve(c, p, o, o.id, o.abandon)
}

// creating opens sessions in sandboxes of their own.
type creating struct {
	h      *Handler
	p      core.Principal
	policy attachment.Policy
	id     sandbox.ID
	req    sandbox.Requested

	requested atomic.Bool // the sandbox may exist
	attached  atomic.Bool // a session has it
}

// Open implements [session.Opener].
func (o *creating) Open(ctx context.Context, resume string) (*session.Services, error) {
	if resume != "" {
		return o.resume(ctx, resume)
	}
	o.requested.Store(true)
	create, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if err := o.h.cfg.Creator.Ensure(create, o.p, o.id, o.req); err != nil {
		return nil, err
	}
	a, err := o.h.cfg.Keeper.Open(ctx, attachment.Session{Tenant: o.p.Tenant, Surface: Surface, Sandbox: o.id, Owned: true, Policy: o.policy})
	if err != nil {
		return nil, err
	}
	o.attached.Store(true)
	return o.h.backend.Services(o.p, o.id, a), nil
}

// resume attaches the client to its session, whose sandbox is the session's.
func (o *creating) resume(ctx context.Context, id string) (*session.Services, error) {
	a, err := o.h.cfg.Keeper.Resume(ctx, o.p.Tenant, id, func(s *attachment.Session) bool {
		return s.Surface == Surface && s.Owned
	})
	if err != nil {
		return nil, err
	}
	sbx := a.State().Sandbox
	if _, err := o.h.cfg.Operations.RequireRunning(ctx, o.p, sbx); err != nil {
		a.Detach()
		return nil, gone(err)
	}
	return o.h.backend.Services(o.p, sbx, a), nil
}

// gone returns NotFound for a session whose sandbox cannot be used any more.
func gone(err error) error {
	if kind.Is(err, kind.Conflict) {
		return kind.Wrap(kind.Unavailable, "resume session", "", err)
	}
	return err
}

// abandon ends a sandbox that no session has.
func (o *creating) abandon() {
	if o.requested.Load() && !o.attached.Load() {
		o.h.cfg.Operations.Abandon(context.Background(), o.id)
	}
}
