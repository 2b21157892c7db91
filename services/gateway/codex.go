package gateway

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// creator creates sandboxes for surfaces whose requests have only a template and a lifetime.
type creator struct {
	ops    *operations.Operations
	limits limits.Default
}

// Requested returns the request for a sandbox.
func (cr *creator) Requested(ctx context.Context, p core.Principal, template string, lifetime time.Duration) (sandbox.Requested, error) {
	req, err := cr.ops.Templates.FromTemplate(ctx, p, template, sandbox.Requested{
		Schedule: sandbox.Schedule{Lifetime: lifetime}, Secure: true, AllowInternet: true, Network: sandbox.Network{Internet: true},
	})
	if err != nil {
		return req, err
	}
	return req, new(limits.Body).Apply(&req, cr.limits)
}

// Ensure creates a sandbox with an id that only the caller has, or waits for it.
func (cr *creator) Ensure(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) error {
	st, err := cr.ops.Provisioner.EnsureSandbox(ctx, p, id, req)
	if err == nil && req.Start != "" {
		cr.ops.Procs.RunTemplateCommand(ctx, p, &st)
	}
	return err
}
