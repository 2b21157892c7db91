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

// Config says how to run a Net. The zero value of a field is its default.
type Config struct {
	Key   string       // what tells this host's interfaces from another's on the same machine: its data directory
	Range netip.Prefix // of IPv4, of which each sandbox has a /30; default 10.213.0.0/16
	Steps []Step       // what sandboxes may send to
	Log   *slog.Logger // default: silence

	again time.Duration // between two times that Keep applies the rules
	conns uint64        // that a sandbox may have; default a part of those that the kernel tracks
}

// Net gives interfaces. Its methods may be called concurrently.
type Net struct {
	cfg Config

	mu     sync.Mutex
	given  numbers // that have an interface, or had one
	giving uint64
}

const (
	inside   = "eth0" // an interface's name in its sandbox
	perBox   = 4      // addresses of a sandbox
	boxBits  = 30
	maxBoxes = 1 << 14

	defaultAgain = 10 * time.Second

	tablePrefix = "millrace_"

	attachTries = 8 // of numbers that another host takes at the same moment

	connsPart    = 16 // of the connections that the kernel tracks a sandbox may have that part
	defaultConns = 1 << 18 / connsPart
)

func (c *Config) id() string     { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(c.Key)))[:6] }
func (c *Config) table() string  { return tablePrefix + c.id() }
func (c *Config) prefix() string { return "mr" + c.id() + "x" } // an interface's name has 15 bytes at most

// Open puts the rules in force, or says why that cannot be done here. Interfaces
// that an earlier life gave stay.
func Open(ctx context.Context, cfg Config) (*Net, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !cfg.Range.IsValid() {
		cfg.Range = netip.MustParsePrefix("10.213.0.0/16")
	}
	cfg.again = cmp.Or(cfg.again, defaultAgain)
	cfg.conns = cmp.Or(cfg.conns, tracked()/connsPart, defaultConns)
	cfg.Range = cfg.Range.Masked()
	switch {
	case os.Geteuid() != 0:
		return nil, kind.New(kind.Unimplemented, "open veth", "", "interfaces for sandboxes need root")
	case !cfg.Range.Addr().Is4() || cfg.Range.Bits() > boxBits:
		return nil, kind.Newf(kind.Invalid, "open veth", "", "%s has no room for a sandbox", cfg.Range)
	}
	n := &Net{cfg: cfg, given: make(numbers)}
	if err := nft(ctx, cfg.rules()); err != nil {
		return nil, err
	}
	for i := range n.most() { // by an earlier life, perhaps
		n.give(i)
	}
	n.clean()
	if err := n.forward(); err != nil {
		return nil, err
	}
	return n, nil
}

// tracked is how many connections the kernel tracks at most; 0: it does not say.
func tracked() uint64 {
	b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64) //nolint:errcheck // 0 then
	return n
}

// Keep applies the rules now and then until ctx ends: whoever loads the machine's own
// with nft mostly begins with "flush ruleset", and ours went with the others.
func (n *Net) Keep(ctx context.Context) {
	tick := time.NewTicker(n.cfg.again)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n.clean()
		if err := nft(ctx, n.cfg.rules()); err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("the rules for sandboxes' interfaces could not be applied again", "err", err)
		}
		if err := n.forward(); err != nil { // another host may have switched it off
			n.cfg.Log.Error("forwarding for sandboxes' interfaces could not be switched on again", "err", err)
		}
	}
}

// Remove takes the interfaces away that earlier lives with that Config.Key gave. It
// wants no nft, and is for a life that gives none: nobody there would count what goes
// through them, or see to their rules.
func Remove(key string) error {
	n := &Net{cfg: Config{Key: key}}
	return n.Sweep(func(sandbox.ID) bool { return false })
}

// nft has nftables do what a script says, all of it or nothing.
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

// links are our interfaces, by their number. Where others came or went meanwhile it may lack
// some.
func (n *Net) links() (map[int]netlink.Link, error) {
	all, err := n.look()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return all, nil
}

func (n *Net) look() (map[int]netlink.Link, error) {
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

// addrs are the two ends of an interface: the host's and the sandbox's.
func (n *Net) addrs(i int) (ours, theirs *netlink.Addr) {
	b := n.cfg.Range.Addr().As4()
	base := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	at := func(k int) *netlink.Addr {
		v := base + uint32(i*perBox+k)
		ip := net.IPv4(byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
		return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(boxBits, 32)}}
	}
	return at(1), at(2)
}

// Attach gives the sandbox with that network namespace an interface, unless it has
// one. The file is the namespace's and stays the caller's.
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
		if l.Attrs().Flags&net.FlagUp != 0 { // that comes last
			return nil
		}
		if err := netlink.LinkDel(l); err != nil {
			return fmt.Errorf("remove half an interface: %w", err)
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
			netlink.LinkDel(l) //nolint:errcheck // the first error says more, and Sweep comes by
		}
		if err != nil {
			return fmt.Errorf("make an interface: %w", err)
		}
	}
	return kind.New(kind.Unavailable, "attach", string(id), "another host takes the same addresses")
}

// choose gives a number that nobody has; n.mu is held.
func (n *Net) choose(id sandbox.ID, links map[int]netlink.Link) (i int, err error) {
	others := n.others()
	i, ok := n.free(links, others)
	if !ok { // but those that went a moment ago
		n.forget(n.gone(links))
		i, ok = n.free(links, others)
	}
	if !ok {
		return 0, kind.New(kind.Exhausted, "attach", string(id), "the range of addresses is used up")
	}
	n.give(i)
	return i, nil
}

// others are the numbers whose addresses are on interfaces that are not ours, as of another
// host on this machine. Who cannot tell finds none.
func (n *Net) others() map[int]bool {
	others := make(map[int]bool)
	addrs, _ := netlink.AddrList(nil, netlink.FAMILY_V4) //nolint:errcheck // as said
	ours := make(map[int]bool)
	links, _ := n.look() //nolint:errcheck // likewise
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

// most is how many interfaces there can be.
func (n *Net) most() int { return min(maxBoxes, 1<<(boxBits-n.cfg.Range.Bits())) }

// free is the first number that no interface has, nor connections; n.mu is held.
func (n *Net) free(links map[int]netlink.Link, others map[int]bool) (i int, ok bool) {
	for links[i] != nil || n.given[i] > 0 || others[i] {
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
	if err := furnish(ns, theirs, ours.IP); err != nil {
		return err
	}
	for file, value := range map[string]string{"ipv6/conf/" + name + "/disable_ipv6": "1", "ipv4/conf/" + name + "/rp_filter": "1"} {
		err := os.WriteFile("/proc/sys/net/"+file, []byte(value), 0o644) //nolint:gosec // it is the kernel's
		if err != nil && !errors.Is(err, os.ErrNotExist) {               // a kernel without IPv6
			return err
		}
	}
	return errors.Join(netlink.AddrAdd(link, ours), netlink.LinkSetUp(link))
}

// furnish gives the sandbox's end its address and its way.
func furnish(ns *os.File, addr *netlink.Addr, gateway net.IP) error {
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
	return letPing(ns)
}

// letPing lets all in a namespace send pings, which need no rights then. The kernel lets
// nobody before somebody says who may.
func letPing(ns *os.File) error {
	runtime.LockOSThread() // and where it cannot come back it stays so, and serves nobody else
	ours, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer ours.Close() //nolint:errcheck // it was only looked at
	if err = netns.Set(netns.NsHandle(ns.Fd())); err == nil {
		err = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0o644) //nolint:gosec // it is the kernel's
	}
	if back := netns.Set(ours); back != nil {
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// Used is what the sandboxes' interfaces have counted, as the sandboxes see it.
func (n *Net) Used() (map[sandbox.ID]sandbox.LinkUsed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, err := n.links()
	used := make(map[sandbox.ID]sandbox.LinkUsed, len(links))
	for _, l := range links {
		// Ours is the other end: what it receives a sandbox has sent.
		if a := l.Attrs(); a.Statistics != nil {
			used[sandbox.ID(a.Alias)] = sandbox.LinkUsed{Index: uint32(a.Index), Sent: a.Statistics.RxBytes, Received: a.Statistics.TxBytes}
		}
	}
	return used, err
}

// Detach takes a sandbox's interface away, and gives what it had counted; none is
// fine.
func (n *Net) Detach(id sandbox.ID) (sandbox.LinkUsed, error) {
	used, err := n.Used()
	return used[id], errors.Join(err, n.Sweep(func(other sandbox.ID) bool { return other != id }))
}

// Sweep takes the interfaces away that keep does not want.
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
			if _, still := netlink.LinkByName(l.Attrs().Name); still == nil {
				err = cmp.Or(err, derr)
			}
		}
	}
	return err
}
