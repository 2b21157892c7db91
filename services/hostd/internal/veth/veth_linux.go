package veth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Config configures a Net. The zero value of a field is its default.
type Config struct {
	Key   string       // distinguishes this host's interfaces from those of others on the same machine: its data directory
	Range netip.Prefix // IPv4 range of which each sandbox gets a /30; default 10.213.0.0/16
	Steps []Step       // destinations that sandboxes may or may not reach
	Log   *slog.Logger // default: discard

	interval time.Duration // interval at which Keep applies the rules
	conns    uint64        // maximum number of connections per sandbox; default: a fraction of those that the kernel tracks
}

// Net assigns interfaces. Its methods may be called concurrently.
type Net struct {
	cfg Config

	mu       sync.Mutex
	assigned numbers // numbers that have an interface, or had one
	sequence uint64
}

const (
	inside          = "eth0" // name of an interface in its sandbox
	addrsPerSandbox = 4      // addresses per sandbox
	sandboxBits     = 30
	maxSandboxes    = 1 << 14

	defaultAgain = 10 * time.Second

	tablePrefix = "millrace_"

	attachTries = 8 // retries when another host takes the same number at the same moment

	connsPart    = 16 // divisor of the number of connections that the kernel tracks
	defaultConns = 1 << 18 / connsPart
)

func (c *Config) id() string     { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(c.Key)))[:6] }
func (c *Config) table() string  { return tablePrefix + c.id() }
func (c *Config) prefix() string { return "mr" + c.id() + "x" } // the name of an interface has at most 15 bytes

// Open installs the rules, or returns why that is not possible here. Interfaces
// that an earlier run assigned stay.
func Open(ctx context.Context, cfg Config) (*Net, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Range = cmp.Or(cfg.Range, netip.MustParsePrefix("10.213.0.0/16"))
	cfg.interval = cmp.Or(cfg.interval, defaultAgain)
	cfg.conns = cmp.Or(cfg.conns, tracked()/connsPart, defaultConns)
	cfg.Range = cfg.Range.Masked()
	switch {
	case os.Geteuid() != 0:
		return nil, kind.New(kind.Unimplemented, "open veth", "", "interfaces for sandboxes require root")
	case !cfg.Range.Addr().Is4() || cfg.Range.Bits() > sandboxBits:
		return nil, kind.Newf(kind.Invalid, "open veth", "", "%s is too small for a sandbox", cfg.Range)
	}
	n := &Net{cfg: cfg, assigned: make(numbers)}
	if err := nft(ctx, cfg.rules()); err != nil {
		return nil, err
	}
	for i := range n.most() { // possibly assigned by an earlier run
		n.assign(i)
	}
	n.clean()
	if err := n.forward(); err != nil {
		return nil, err
	}
	return n, nil
}

// tracked returns how many connections the kernel tracks at most; 0: unknown.
func tracked() uint64 {
	b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// Keep applies the rules periodically until ctx ends: tools that load the machine's own rules
// with nft mostly start with "flush ruleset", which removes these, too.
func (n *Net) Keep(ctx context.Context) {
	tick := time.NewTicker(n.cfg.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n.clean()
		if err := nft(ctx, n.cfg.rules()); err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("reapply rules for sandboxes' interfaces failed", "err", err)
		}
		if err := n.forward(); err != nil { // another host may have disabled it
			n.cfg.Log.Error("re-enable forwarding for sandboxes' interfaces failed", "err", err)
		}
	}
}

// Remove removes the interfaces that earlier runs with that Config.Key assigned. It does
// not need nft, and is for a run that assigns none: it would not count their traffic
// or maintain their rules.
func Remove(key string) error {
	n := &Net{cfg: Config{Key: key}}
	return n.Sweep(func(sandbox.ID) bool { return false })
}

// nft executes a script, completely or not at all.
func nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		out, _, _ = bytes.Cut(out, []byte("\n"))
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// Close removes the rules and restores ip_forward, unless a sandbox still has an interface.
func (n *Net) Close(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, err := n.links()
	if err != nil || len(links) > 0 {
		return err
	}
	if err := nft(ctx, "delete table inet "+n.cfg.table()+"\n"); err != nil {
		return err
	}
	return unforward(ctx)
}

// links returns this host's interfaces, by number. If interfaces change meanwhile, some may be
// missing.
func (n *Net) links() (map[int]netlink.Link, error) {
	all, err := n.list()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return all, nil
}

func (n *Net) list() (map[int]netlink.Link, error) {
	all, err := netlink.LinkList()
	out := make(map[int]netlink.Link)
	for _, l := range all {
		if s, ok := strings.CutPrefix(l.Attrs().Name, n.cfg.prefix()); ok {
			if i, err := strconv.Atoi(s); err == nil {
				out[i] = l
			}
		}
	}
	return out, err
}

// addrs returns the addresses of both ends of an interface: the host's and the sandbox's.
func (n *Net) addrs(i int) (ours, theirs *netlink.Addr) {
	b := n.cfg.Range.Addr().As4()
	base := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	at := func(k int) *netlink.Addr {
		v := base + uint32(i*addrsPerSandbox+k)
		ip := net.IPv4(byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
		return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(sandboxBits, 32)}}
	}
	return at(1), at(2)
}

// Attach assigns an interface to the sandbox with that network namespace, unless it has
// one. ns is the namespace; the caller keeps it.
func (n *Net) Attach(id sandbox.ID, ns *os.File) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, err := n.links()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Attrs().Alias != string(id) {
			continue
		}
		if l.Attrs().Flags&net.FlagUp != 0 { // set last
			return nil
		}
		if err := netlink.LinkDel(l); err != nil {
			return fmt.Errorf("remove incomplete interface: %w", err)
		}
	}
	for range attachTries {
		i, err := n.choose(id, links)
		if err != nil {
			return err
		}
		name := n.cfg.prefix() + strconv.Itoa(i)
		err = n.make(name, i, id, ns)
		if err == nil && !n.others()[i] {
			return nil
		}
		if l, lerr := netlink.LinkByName(name); lerr == nil {
			netlink.LinkDel(l) //nolint:errcheck // the first error matters more, and Sweep follows
		}
		if err != nil {
			return fmt.Errorf("create interface: %w", err)
		}
	}
	return kind.New(kind.Unavailable, "attach", string(id), "another host uses the same addresses")
}

// choose returns an unused number; n.mu must be held.
func (n *Net) choose(id sandbox.ID, links map[int]netlink.Link) (i int, err error) {
	others := n.others()
	i, ok := n.free(links, others)
	if !ok { // except those released a moment ago
		n.forget(n.gone(links))
		i, ok = n.free(links, others)
	}
	if !ok {
		return 0, kind.New(kind.Exhausted, "attach", string(id), "the range of addresses is used up")
	}
	n.assign(i)
	return i, nil
}

// others returns the numbers whose addresses other interfaces have, for example of another
// host on this machine; none if that cannot be determined.
func (n *Net) others() map[int]bool {
	others := make(map[int]bool)
	addrs, _ := netlink.AddrList(nil, netlink.FAMILY_V4)
	ours := make(map[int]bool)
	links, _ := n.list()
	for _, l := range links {
		ours[l.Attrs().Index] = true
	}
	for _, a := range addrs {
		if i, ok := n.number(a.IP); ok && !ours[a.LinkIndex] {
			others[i] = true
		}
	}
	return others
}

// most returns the maximum number of interfaces.
func (n *Net) most() int { return min(maxSandboxes, 1<<(sandboxBits-n.cfg.Range.Bits())) }

// free returns the first number without an interface or connections; n.mu must be held.
func (n *Net) free(links map[int]netlink.Link, others map[int]bool) (i int, ok bool) {
	for links[i] != nil || n.assigned[i] > 0 || others[i] {
		i++
	}
	return i, i < n.most()
}

func (n *Net) make(name string, i int, id sandbox.ID, ns *os.File) error {
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: inside, PeerNamespace: netlink.NsFd(ns.Fd())}
	veth.Name = name
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(link, string(id)); err != nil {
		return err
	}
	ours, theirs := n.addrs(i)
	if err := configure(ns, theirs, ours.IP); err != nil {
		return err
	}
	for file, value := range map[string]string{"ipv6/conf/" + name + "/disable_ipv6": "1", "ipv4/conf/" + name + "/rp_filter": "1"} {
		err := os.WriteFile("/proc/sys/net/"+file, []byte(value), 0o644)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			return err
		}
	}
	return errors.Join(netlink.AddrAdd(link, ours), netlink.LinkSetUp(link))
}

// configure configures the address and the default route of the sandbox's end.
func configure(ns *os.File, addr *netlink.Addr, gateway net.IP) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()))
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(inside)
	if err != nil {
		return err
	}
	if err := errors.Join(h.AddrAdd(link, addr), h.LinkSetUp(link)); err != nil {
		return err
	}
	if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway}); err != nil {
		return err
	}
	return allowPing(ns)
}

// allowPing permits all users in a namespace to send pings, which then needs no privileges. The
// kernel's default permits no user.
func allowPing(ns *os.File) error {
	runtime.LockOSThread() // if it cannot return, it stays locked, and serves no other goroutine
	ours, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer ours.Close()
	if err = netns.Set(netns.NsHandle(ns.Fd())); err == nil {
		err = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0o644)
	}
	if back := netns.Set(ours); back != nil {
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// Used returns the traffic counters of all interfaces, from the sandboxes' point of view.
func (n *Net) Used() (map[sandbox.ID]sandbox.LinkUsed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, err := n.links()
	used := make(map[sandbox.ID]sandbox.LinkUsed, len(links))
	for _, l := range links {
		// The host's end receives what the sandbox sends.
		if a := l.Attrs(); a.Statistics != nil {
			used[sandbox.ID(a.Alias)] = sandbox.LinkUsed{Index: uint32(a.Index), Sent: a.Statistics.RxBytes, Received: a.Statistics.TxBytes}
		}
	}
	return used, err
}

// Detach removes a sandbox's interface, and returns its counters; a sandbox without one is
// not an error.
func (n *Net) Detach(id sandbox.ID) (sandbox.LinkUsed, error) {
	used, err := n.Used()
	return used[id], errors.Join(err, n.Sweep(func(other sandbox.ID) bool { return other != id }))
}

// Sweep removes the interfaces of sandboxes for which keep returns false.
func (n *Net) Sweep(keep func(sandbox.ID) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, err := n.links()
	for _, l := range links {
		if keep(sandbox.ID(l.Attrs().Alias)) {
			continue
		}
		derr := netlink.LinkDel(l)
		var gone netlink.LinkNotFoundError
		if derr != nil && !errors.As(derr, &gone) { // its sandbox may have ended meanwhile
			if _, lookErr := netlink.LinkByName(l.Attrs().Name); lookErr == nil {
				err = cmp.Or(err, derr)
			}
		}
	}
	return err
}
