package gateway

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/outbound"
	"github.com/millrace/millrace/services/gateway/internal/e2a/sandboxes"
)

// OutboundConfig configures requests to URLs of tenants, such as persistence backends.
type OutboundConfig struct {
	Allow []netip.Prefix // non-public addresses that such a URL may have
	DNS   string         // name server, as IP:PORT; default the machine's
}

// policy returns the addresses that requests to tenants' URLs may reach.
func (o *OutboundConfig) policy() *outbound.Policy {
	p := &outbound.Policy{Operator: sandbox.Operator{Allow: o.Allow}}
	if o.DNS != "" {
		p.Resolver = outbound.ResolverAt(o.DNS)
	}
	return p
}

// newE2ASandboxes returns the surface for e2a's sandboxes.
func (s *server) newE2ASandboxes() *sandboxes.Handler {
	return sandboxes.New(sandboxes.Config{
		Provisioner: s.ops.Provisioner, Templates: s.ops.Templates, Lifecycle: s.ops.Lifecycle, Hosts: s.ops.Hosts, View: s.ops.Core,
		Outbound: s.cfg.Outbound.policy(), Limits: s.cfg.Limits, Now: time.Now,
	})
}
