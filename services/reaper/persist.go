package reaper

import (
	"context"
	"net/netip"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/outbound"
	"github.com/millrace/millrace/services/reaper/internal/persist"
)

// Outbound configures requests to persistence backends of tenants. A zero field means its default.
type Outbound struct {
	Allow []netip.Prefix // non-public addresses that a backend may have
	DNS   string         // name server, as IP:PORT; default the machine's
}

// persist sends conversations to the backends of their tenants until ctx ends.
func (r *reaper) persist(ctx context.Context) {
	policy := outbound.Policy{Operator: sandbox.Operator{Allow: r.cfg.Outbound.Allow}}
	if r.cfg.Outbound.DNS != "" {
		policy.Resolver = outbound.ResolverAt(r.cfg.Outbound.DNS)
	}
	err := persist.Run(ctx, persist.Config{Log: r.cfg.Log, View: r.view, Slog: r.cfg.Slog, Tick: r.cfg.Tick, Outbound: policy})
	if err != nil {
		r.warn(ctx, "send conversations failed", "", err)
	}
}
