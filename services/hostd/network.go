package hostd

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/ports"
)

// newNetwork returns the network of the host.
func (h *host) newNetwork() *network.Network {
	return network.New(network.Config{
		DataDir: h.cfg.DataDir, Proxy: h.cfg.Egress, Allow: h.cfg.EgressAllow, DNS: h.cfg.EgressDNS,
		Veth: h.cfg.Network == NetworkVeth, VethRange: h.cfg.VethRange, MeterEvery: h.cfg.meterEvery,
		Sandboxes: h.sandboxes.Networks, Exists: h.sandboxes.Exists,
		Go: h.wg.Go, Slog: h.slog,
	})
}

// newPorts returns the server of the sandboxes' ports. The proxy and the view must be open.
func (h *host) newPorts() *ports.Server {
	cfg := ports.Config{
		Host: h.cfg.Name, Log: h.log, Volume: h.volumes.Serve, Go: h.wg.Go,
		Sandbox: func(id sandbox.ID) (ports.Sandbox, bool) {
			ss, ok := h.sandboxes.Session(id)
			return ss, ok
		},
		Egress: func(id sandbox.ID, s *mux.Stream) {
			nw, ok := h.sandboxes.Network(id)
			if !ok {
				s.Abort(kind.New(kind.NotFound, "egress", string(id), "the sandbox does not run here"))
				return
			}
			nw.ServeProxy(s)
		},
	}
	if h.network.HasProxy() {
		cfg.Proxy = network.ProxyPort
	}
	return ports.New(cfg)
}
