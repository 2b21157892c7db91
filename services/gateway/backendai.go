package gateway

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/backendai/signature"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
)

// keyPairs finds key pairs. It implements backendai.Pairs.
type keyPairs func(accessKey string) (tenant, secret string, ok bool)

// Pair returns the pair of an access key.
func (find keyPairs) Pair(accessKey string) (signature.Pair, bool) {
	if find == nil {
		return signature.Pair{}, false
	}
	tenant, secret, ok := find(accessKey)
	return signature.Pair{Tenant: tenant, Secret: secret}, ok
}

// sessionCreator creates the sandboxes of Backend.AI's sessions.
type sessionCreator struct{ *creator }

// Session implements backendai.Creator.
func (cr sessionCreator) Session(ctx context.Context, p core.Principal, name string, w *session.Wanted, idle time.Duration) (sandbox.Requested, error) {
	req, err := cr.ops.Templates.FromTemplate(ctx, p, name, sandbox.Requested{
		Schedule: sandbox.Schedule{Lifetime: idle}, Secure: true, AllowInternet: true, Network: sandbox.Network{Internet: true},
		Defaults: sandbox.Defaults{Env: w.Env},
	})
	if err != nil {
		return req, err
	}
	var services []template.Service
	if t, ok := cr.ops.Core.View.TemplateByID(template.ID(req.Template)); ok {
		services = t.Manifest.Services
	}
	req.Metadata = w.Metadata(services)
	return req, (&limits.Body{CPUCount: w.CPUs, MemoryMB: w.MemoryMiB}).Apply(&req, cr.limits)
}

// Ensure implements backendai.Creator.
func (cr sessionCreator) Ensure(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	st, err := cr.ops.Provisioner.EnsureSandbox(ctx, p, id, req)
	if err == nil && st.Request.Start != "" {
		cr.ops.Procs.RunTemplateCommand(ctx, p, &st)
	}
	return st, err
}

// GiveName implements backendai.Creator.
func (cr sessionCreator) GiveName(ctx context.Context, p core.Principal, id, to sandbox.ID, metadata map[string]string) error {
	rev, err := cr.ops.Core.Log.AppendSandbox(ctx, p.Tenant, id, 0, 1,
		sandbox.Requested{Metadata: metadata, Origin: sandbox.Origin{FromSandbox: to}}, sandbox.Stopping{Cause: sandbox.CauseUser})
	if err != nil {
		return err
	}
	_, err = cr.ops.Core.View.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Rev >= rev })
	return err
}

// RunTemplateCommand implements backendai.Creator.
func (cr sessionCreator) RunTemplateCommand(ctx context.Context, p core.Principal, st *sandbox.State) {
	cr.ops.Procs.RunTemplateCommand(ctx, p, st)
}

// enqueued is how long a session may wait for a host if its client does not wait for it.
const enqueued = time.Hour

// Enqueue implements backendai.Creator.
func (cr sessionCreator) Enqueue(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	req.PlaceBy = time.Now().Add(enqueued)
	req.RunBy = req.PlaceBy.Add(cr.ops.Core.CreateTimeout)
	var err error
	if req.Defaults, err = req.Defaults.Seal(cr.ops.Core.Sealer, p.Tenant, string(id)); err != nil {
		return sandbox.State{}, core.LogError("create sandbox", string(id), err)
	}
	_, err = cr.ops.Core.View.CreateSandbox(ctx, p.Tenant, id, req)
	if err != nil && !kind.Is(err, kind.Conflict) {
		return sandbox.State{}, core.LogError("create sandbox", string(id), err)
	}
	return cr.ops.Lifecycle.Lookup(ctx, p, id)
}
