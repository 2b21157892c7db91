package network

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/internal/outbound"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/veth"
)

const (
	// DefaultMeterEvery is the default of Config.MeterEvery. Traffic is recorded when it grew by
	// a hundredth, or an hour has passed: a sandbox that sends for a month has a few thousand
	// lines in its record, not one per minute.
	DefaultMeterEvery = time.Minute
	meterPart         = 100
	meterMost         = 60 // intervals after which a smaller change is recorded, too
	// authorityFile has the certificate authority that sandboxes with transforms trust, in the
	// data directory.
	authorityFile = "egress-ca.pem"
)

// Config configures a Network.
type Config struct {
	DataDir    string         // directory of the host, which also identifies its interfaces
	Proxy      bool           // sandboxes may use the network; otherwise no other setting counts
	Allow      []netip.Prefix // addresses that are not public and may be reached
	DNS        string         // IP:PORT of the sandboxes' name server; default: the machine's
	Veth       bool           // sandboxes may have interfaces of their own
	VethRange  netip.Prefix   // range of their addresses; default: veth's
	MeterEvery time.Duration  // interval in which traffic is counted; default DefaultMeterEvery

	Sandboxes func() []*Sandbox     // returns the current sandboxes
	Exists    func(sandbox.ID) bool // reports whether one of them has that ID
	Go        func(func())          // runs a function in the background
	Slog      *slog.Logger
}

// Network is the network of all sandboxes: the proxy and the interfaces.
type Network struct {
	cfg  Config
	view *catalog.View // set by UseView

	egress    *egress.Server // nil: no sandbox may use the network; then the next two are nil, too
	authority *egress.Authority
	sealed    *seal.Ring
	signing   *identity.Ring
	veth      *veth.Net   // nil: no sandbox has a network interface of its own
	swept     atomic.Bool // the interfaces that are in use are known
}

// New returns a network that is not open.
func New(cfg Config) *Network {
	cfg.MeterEvery = cmp.Or(cfg.MeterEvery, DefaultMeterEvery)
	return &Network{cfg: cfg}
}

// OpenProxy starts the proxy, if sandboxes may use the network.
func (n *Network) OpenProxy() (closeIt func(), err error) {
	if !n.cfg.Proxy {
		return func() {}, nil
	}
	if n.authority, err = egress.OpenAuthority(filepath.Join(n.cfg.DataDir, authorityFile)); err != nil {
		return nil, fmt.Errorf("open certificate authority of the proxy: %w", err)
	}
	cfg := egress.Config{Operator: sandbox.Operator{Allow: n.cfg.Allow}, Authority: n.authority}
	if n.cfg.DNS != "" {
		cfg.Resolver = outbound.ResolverAt(n.cfg.DNS)
	}
	n.egress = egress.NewServer(cfg)
	return n.egress.Close, nil
}

// HasProxy reports whether sandboxes may use the network.
func (n *Network) HasProxy() bool { return n.egress != nil }

// UseView sets the view that has the sandboxes' records.
func (n *Network) UseView(view *catalog.View) { n.view = view }

// UseRing sets the ring of secrets in records.
func (n *Network) UseRing(r *seal.Ring) { n.sealed, n.signing = r, identity.NewRing(r) }

// Run records the sandboxes' traffic until ctx ends.
func (n *Network) Run(ctx context.Context) error {
	if n.egress == nil {
		return nil
	}
	tick := time.NewTicker(n.cfg.MeterEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := time.Now()
			n.record(ctx, func(nw *Sandbox, s *sandbox.State) []sandbox.Body { return nw.trafficDue(s, now) })
		}
	}
}

// Record records all traffic that is not on record yet.
func (n *Network) Record(ctx context.Context) {
	if n.egress != nil {
		n.record(ctx, (*Sandbox).Traffic)
	}
}

// record records the traffic of each sandbox as use returns it.
func (n *Network) record(ctx context.Context, use func(*Sandbox, *sandbox.State) []sandbox.Body) {
	links := n.linkTraffic()
	for _, nw := range n.cfg.Sandboxes() {
		nw.addLinkTraffic(links)
		_, err := n.view.ChangeSandbox(ctx, nw.cfg.ID, func(s sandbox.State) ([]sandbox.Body, error) { return use(nw, &s), nil })
		if err != nil && ctx.Err() == nil {
			n.cfg.Slog.Warn("record traffic failed", "sandbox", nw.cfg.ID, "err", err)
		}
	}
}
