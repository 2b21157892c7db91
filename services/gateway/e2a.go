package gateway

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/outbound"
	"github.com/millrace/millrace/services/gateway/internal/agents"
	"github.com/millrace/millrace/services/gateway/internal/e2a/sandboxes"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/record"
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

// newAgents returns the operations on agents with one task.
func newAgents(ops *operations.Operations) *agents.Agents {
	return agents.New(agents.Config{Processes: record.NewGateway(ops), View: ops.Core.View, Sync: ops.Core.SyncProcesses, Hold: ops.Lifecycle.Hold})
}

// newE2ASandboxes returns the surface for e2a's sandboxes.
func (s *server) newE2ASandboxes() *sandboxes.Handler {
	return sandboxes.New(sandboxes.Config{
		Provisioner: s.ops.Provisioner, Templates: s.ops.Templates, Lifecycle: s.ops.Lifecycle, Hosts: s.ops.Hosts, View: s.ops.Core,
		Outbound: s.cfg.Outbound.policy(), Workspaces: s.workspaces.mounts, Sealer: s.ops.Core.Sealer, Agents: s.agents, Credits: s.books, Processes: record.NewGateway(s.ops), Limits: s.cfg.Limits, Now: time.Now,
	})
}
