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

// publicDNS is what sandboxes with an interface ask for names, as E2B's do.
const publicDNS = "8.8.8.8"

// openVeth makes what gives sandboxes interfaces, if that is wanted and can be. Else
// those of an earlier life are taken away.
func (h *host) openVeth(ctx context.Context) (closeIt func()) {
	if h.egress == nil || h.cfg.Network != NetworkVeth {
		return h.noVeth()
	}
	operator := sandbox.Operator{Allow: h.cfg.EgressAllow}
	allowedOnes, refusedOnes, allowed, refused := operator.Ranges()
	v, err := veth.Open(ctx, veth.Config{Key: h.cfg.DataDir, Range: h.cfg.VethRange, Log: h.slog, Steps: []veth.Step{
		{Allow: true, Nets: allowedOnes}, {Nets: refusedOnes}, {Allow: true, Nets: allowed}, {Nets: refused},
	}})
	if err != nil {
		h.slog.Warn("sandboxes get no interfaces here, only the proxy", "err", err)
		return h.noVeth()
	}
	h.veth = v
	life, end := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		v.Keep(life)
	}()
	return func() {
		end()
		<-kept
		if h.recovered.Load() { // else it is not known whose they are
			h.sweepVeth() // of those that ended just now the kernel takes them away later
		}
		if err := v.Close(context.WithoutCancel(ctx)); err != nil {
			h.slog.Warn("the rules for sandboxes' interfaces could not be taken away", "err", err)
		}
	}
}

func (h *host) noVeth() (closeIt func()) {
	if err := veth.Remove(h.cfg.DataDir); err != nil {
		h.slog.Error("sandboxes' interfaces of an earlier life could not be taken away", "err", err)
	}
	return func() {}
}

// sweepVeth takes the interfaces away that no sandbox of this host has.
func (h *host) sweepVeth() {
	if h.veth == nil {
		return
	}
	if err := h.veth.Sweep(func(id sandbox.ID) bool { return h.box(id) != nil }); err != nil {
		h.slog.Warn("interfaces that nobody has could not be taken away", "err", err)
	}
}

// wide reports whether the record lets the sandbox reach all that is public, just
// so: what an interface gives cannot be less. b.mu is held.
func (b *box) wide() bool {
	n := &b.net
	return b.reachable && n.Internet && len(n.Allow)+len(n.Deny)+len(n.Transforms) == 0 && n.Proxy == nil
}

// plug gives the sandbox an interface, or takes it away, as its record wants, and
// gives the address of its name server; empty: it has none. b.mu is held, and the
// shim was connected to.
func (b *box) plug() (dns string) {
	if b.h.veth == nil {
		return ""
	}
	place, ok := b.instance().(driver.Netted)
	if !ok || !b.wide() || !b.isolated() {
		b.unplug()
		return ""
	}
	ns, err := place.NetNS()
	if err == nil {
		defer ns.Close() //nolint:errcheck // it was only looked at
		err = b.h.veth.Attach(b.id, ns)
	}
	if kind.Is(err, kind.Unimplemented) {
		return ""
	}
	if err != nil {
		b.h.slog.Warn("a sandbox has no interface", "sandbox", b.id, "err", err)
		return ""
	}
	return b.h.cfg.nameServer()
}

// nameServer is what a sandbox with an interface asks for names: the operator's, if
// its interface lets it and resolv.conf, which knows no port, can name it.
func (cfg *Config) nameServer() string {
	at, err := netip.ParseAddrPort(cfg.EgressDNS)
	operator := sandbox.Operator{Allow: cfg.EgressAllow}
	if a := at.Addr(); err != nil || at.Port() != 53 || !a.Is4() || a.IsLoopback() || ownaddr.Has(a) || !operator.Allows(a) {
		return publicDNS
	}
	return at.Addr().String()
}

// unplug takes the sandbox's interface away; b.mu is held.
func (b *box) unplug() {
	if b.h.veth == nil {
		return
	}
	used, err := b.h.veth.Detach(b.id)
	if err != nil {
		b.h.slog.Error("a sandbox's interface could not be taken away", "sandbox", b.id, "err", err)
	}
	b.used = b.used.Counted(used)
}

// linksUsed is what all sandboxes' interfaces have counted.
func (h *host) linksUsed() map[sandbox.ID]sandbox.LinkUsed {
	if h.veth == nil {
		return nil
	}
	used, err := h.veth.Used()
	if err != nil {
		h.slog.Warn("sandboxes' interfaces could not be read", "err", err)
	}
	return used
}

// linkUsed notes what the sandbox's interface has counted, if it has one.
func (b *box) linkUsed(all map[sandbox.ID]sandbox.LinkUsed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = b.used.Counted(all[b.id])
}
