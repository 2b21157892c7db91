package hostd

import (
	"cmp"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/ports"
)

// newNetwork returns the network of the host.
func (h *host) newNetwork() *network.Network {
	return network.New(network.Config{
		DataDir: h.cfg.DataDir, Proxy: h.cfg.Egress, Allow: h.cfg.EgressAllow, DNS: h.cfg.EgressDNS,
		Veth: h.cfg.Network == NetworkVeth, VethRange: h.cfg.VethRange, MeterEvery: h.cfg.meterEvery,
		Sandboxes: h.sandboxes.networks, Exists: func(id sandbox.ID) bool { return h.sandboxes.get(id) != nil },
		Go: h.wg.Go, Slog: h.slog,
	})
}

// networks returns the networks of the current sandboxes.
func (set *sandboxSet) networks() []*network.Sandbox {
	var all []*network.Sandbox
	for _, sb := range set.all() {
		all = append(all, sb.network)
	}
	return all
}

// newNetwork returns the network of the sandbox.
func (sb *hostSandbox) newNetwork(used sandbox.NetworkUsed) *network.Sandbox {
	return sb.h.network.Sandbox(network.SandboxConfig{
		ID: sb.id, Tenant: sb.tenant, Template: cmp.Or(sb.req.Built, sb.req.Template), Identity: &sb.req.Identity, Used: used,
		Isolation: func() sandbox.Isolation { return sb.created.Isolation }, Instance: sb.current.Instance,
	})
}

// newPorts returns the server of the sandboxes' ports. The proxy and the view must be open.
func (h *host) newPorts() *ports.Server {
	cfg := ports.Config{
		Host: h.cfg.Name, Log: h.log, Volume: h.volumes.Serve, Go: h.wg.Go,
		Sandbox: func(id sandbox.ID) (ports.Sandbox, bool) {
			sb := h.sandboxes.get(id)
			if sb == nil {
				return nil, false
			}
			return sb.session, true
		},
	}
	if h.network.HasProxy() {
		cfg.Proxy = network.ProxyPort
	}
	return ports.New(cfg)
}
