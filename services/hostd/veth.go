package hostd

import (
	"context"
	"net/netip"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/ownaddr"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/veth"
)

// publicDNS is the name server of sandboxes with an interface, as in E2B.
const publicDNS = "8.8.8.8"

// openVeth sets up the network interfaces of sandboxes, if they are configured and possible.
// Otherwise it removes those of a previous run.
func (n *hostNetwork) openVeth(ctx context.Context) (closeIt func()) {
	if n.egress == nil || n.h.cfg.Network != NetworkVeth {
		return n.noVeth()
	}
	operator := sandbox.Operator{Allow: n.h.cfg.EgressAllow}
	allowedOnes, refusedOnes, allowed, refused := operator.Ranges()
	v, err := veth.Open(ctx, veth.Config{Key: n.h.cfg.DataDir, Range: n.h.cfg.VethRange, Log: n.h.slog, Steps: []veth.Step{
		{Allow: true, Nets: allowedOnes}, {Nets: refusedOnes}, {Allow: true, Nets: allowed}, {Nets: refused},
	}})
	if err != nil {
		n.h.slog.Warn("set up sandbox interfaces failed, using the proxy only", "err", err)
		return n.noVeth()
	}
	n.veth = v
	runCtx, end := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		v.Keep(runCtx)
	}()
	return func() {
		end()
		<-kept
		if n.h.leases.recovered.Load() { // else it is not known which ones are in use
			n.sweepVeth() // the kernel removes those of sandboxes that just ended later
		}
		if err := v.Close(context.WithoutCancel(ctx)); err != nil {
			n.h.slog.Warn("remove rules of sandbox interfaces failed", "err", err)
		}
	}
}

func (n *hostNetwork) noVeth() (closeIt func()) {
	if err := veth.Remove(n.h.cfg.DataDir); err != nil {
		n.h.slog.Error("remove sandbox interfaces of a previous run failed", "err", err)
	}
	return func() {}
}

// sweepVeth removes the interfaces that belong to no sandbox of this host.
func (n *hostNetwork) sweepVeth() {
	if n.veth == nil {
		return
	}
	if err := n.veth.Sweep(func(id sandbox.ID) bool { return n.h.sandboxes.get(id) != nil }); err != nil {
		n.h.slog.Warn("remove unused sandbox interfaces failed", "err", err)
	}
}

// wide reports whether the record allows all public destinations without restriction: an
// interface cannot give less. mu is held.
func (nw *sandboxNetwork) wide() bool {
	n := &nw.settings
	return nw.reachable && n.Internet && len(n.Allow)+len(n.Deny)+len(n.Transforms) == 0 && n.Proxy == nil
}

// plug attaches or detaches the sandbox's network interface as its record says, and returns the
// address of its name server; empty: it has none. mu is held, and the shim was connected to
// before.
func (nw *sandboxNetwork) plug() (dns string) {
	if nw.sb.h.network.veth == nil {
		return ""
	}
	inst, ok := nw.sb.current.get().(driver.Networked)
	if !ok || !nw.wide() || !nw.isolated() {
		nw.unplug()
		return ""
	}
	ns, err := inst.NetNS()
	if err == nil {
		defer ns.Close() //nolint:errcheck // it was only read
		err = nw.sb.h.network.veth.Attach(nw.sb.id, ns)
	}
	if kind.Is(err, kind.Unimplemented) {
		return ""
	}
	if err != nil {
		nw.sb.h.slog.Warn("attach sandbox interface failed", "sandbox", nw.sb.id, "err", err)
		return ""
	}
	return nw.sb.h.cfg.nameServer()
}

// nameServer returns the name server of a sandbox with an interface: the operator's, if it is
// reachable through the interface and can be written to resolv.conf, which has no ports.
func (cfg *Config) nameServer() string {
	at, err := netip.ParseAddrPort(cfg.EgressDNS)
	operator := sandbox.Operator{Allow: cfg.EgressAllow}
	if a := at.Addr(); err != nil || at.Port() != 53 || !a.Is4() || a.IsLoopback() || ownaddr.Has(a) || !operator.Allows(a) {
		return publicDNS
	}
	return at.Addr().String()
}

// unplugReplaced detaches the network interface of an instance that was replaced.
func (nw *sandboxNetwork) unplugReplaced() {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.unplug()
}

// unplug detaches the sandbox's network interface; mu is held.
func (nw *sandboxNetwork) unplug() {
	if nw.sb.h.network.veth == nil {
		return
	}
	used, err := nw.sb.h.network.veth.Detach(nw.sb.id)
	if err != nil {
		nw.sb.h.slog.Error("detach sandbox interface failed", "sandbox", nw.sb.id, "err", err)
	}
	nw.used = nw.used.Counted(used)
}

// linkTraffic returns the traffic of all sandboxes' interfaces.
func (n *hostNetwork) linkTraffic() map[sandbox.ID]sandbox.LinkUsed {
	if n.veth == nil {
		return nil
	}
	used, err := n.veth.Used()
	if err != nil {
		n.h.slog.Warn("read traffic of sandbox interfaces failed", "err", err)
	}
	return used
}

// addLinkTraffic adds the traffic of the sandbox's interface, if it has one.
func (nw *sandboxNetwork) addLinkTraffic(all map[sandbox.ID]sandbox.LinkUsed) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.used = nw.used.Counted(all[nw.sb.id])
}
