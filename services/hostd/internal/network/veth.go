package network

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

// OpenVeth sets up the network interfaces of sandboxes, if they are configured and possible.
// Otherwise it removes those of a previous run.
func (n *Network) OpenVeth(ctx context.Context) (closeIt func()) {
	if n.egress == nil || !n.cfg.Veth {
		return n.noVeth()
	}
	operator := sandbox.Operator{Allow: n.cfg.Allow}
	allowedOnes, refusedOnes, allowed, refused := operator.Ranges()
	v, err := veth.Open(ctx, veth.Config{Key: n.cfg.DataDir, Range: n.cfg.VethRange, Log: n.cfg.Slog, Steps: []veth.Step{
		{Allow: true, Nets: allowedOnes}, {Nets: refusedOnes}, {Allow: true, Nets: allowed}, {Nets: refused},
	}})
	if err != nil {
		n.cfg.Slog.Warn("set up sandbox interfaces failed, using the proxy only", "err", err)
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
		if n.swept.Load() { // else it is not known which ones are in use
			n.Sweep() // the kernel removes those of sandboxes that just ended later
		}
		if err := v.Close(context.WithoutCancel(ctx)); err != nil {
			n.cfg.Slog.Warn("remove rules of sandbox interfaces failed", "err", err)
		}
	}
}

func (n *Network) noVeth() (closeIt func()) {
	if err := veth.Remove(n.cfg.DataDir); err != nil {
		n.cfg.Slog.Error("remove sandbox interfaces of a previous run failed", "err", err)
	}
	return func() {}
}

// Sweep removes the interfaces that belong to no sandbox of this host. Its sandboxes must be known.
func (n *Network) Sweep() {
	n.swept.Store(true)
	if n.veth == nil {
		return
	}
	if err := n.veth.Sweep(n.cfg.Exists); err != nil {
		n.cfg.Slog.Warn("remove unused sandbox interfaces failed", "err", err)
	}
}

// wide reports whether the record allows all public destinations without restriction: an
// interface cannot give less. mu is held.
func (nw *Sandbox) wide() bool {
	n := &nw.settings
	return nw.reachable && n.Internet && len(n.Allow)+len(n.Deny)+len(n.Transforms) == 0 && n.Proxy == nil
}

// plug attaches or detaches the sandbox's network interface as its record says, and returns the
// address of its name server; empty: it has none. mu is held, and the shim was connected to
// before.
func (nw *Sandbox) plug() (dns string) {
	if nw.n.veth == nil {
		return ""
	}
	inst, ok := nw.cfg.Instance().(driver.Networked)
	if !ok || !nw.wide() || !nw.isolated() {
		nw.unplug()
		return ""
	}
	ns, err := inst.NetNS()
	if err == nil {
		defer ns.Close()
		err = nw.n.veth.Attach(nw.cfg.ID, ns)
	}
	if kind.Is(err, kind.Unimplemented) {
		return ""
	}
	if err != nil {
		nw.n.cfg.Slog.Warn("attach sandbox interface failed", "sandbox", nw.cfg.ID, "err", err)
		return ""
	}
	return nw.n.cfg.nameServer()
}

// nameServer returns the name server of a sandbox with an interface: the operator's, if it is
// reachable through the interface and can be written to resolv.conf, which has no ports.
func (cfg *Config) nameServer() string {
	at, err := netip.ParseAddrPort(cfg.DNS)
	operator := sandbox.Operator{Allow: cfg.Allow}
	if a := at.Addr(); err != nil || at.Port() != 53 || !a.Is4() || a.IsLoopback() || ownaddr.Has(a) || !operator.Allows(a) {
		return publicDNS
	}
	return at.Addr().String()
}

// UnplugReplaced detaches the network interface of an instance that was replaced.
func (nw *Sandbox) UnplugReplaced() {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.unplug()
}

// unplug detaches the sandbox's network interface; mu is held.
func (nw *Sandbox) unplug() {
	if nw.n.veth == nil {
		return
	}
	used, err := nw.n.veth.Detach(nw.cfg.ID)
	if err != nil {
		nw.n.cfg.Slog.Error("detach sandbox interface failed", "sandbox", nw.cfg.ID, "err", err)
	}
	nw.used = nw.used.Counted(used)
}

// linkTraffic returns the traffic of all sandboxes' interfaces.
func (n *Network) linkTraffic() map[sandbox.ID]sandbox.LinkUsed {
	if n.veth == nil {
		return nil
	}
	used, err := n.veth.Used()
	if err != nil {
		n.cfg.Slog.Warn("read traffic of sandbox interfaces failed", "err", err)
	}
	return used
}

// CountLink counts the traffic of the sandbox's interface, which is removed after that.
func (nw *Sandbox) CountLink() { nw.addLinkTraffic(nw.n.linkTraffic()) }

// addLinkTraffic adds the traffic of the sandbox's interface, if it has one.
func (nw *Sandbox) addLinkTraffic(all map[sandbox.ID]sandbox.LinkUsed) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.used = nw.used.Counted(all[nw.cfg.ID])
}
