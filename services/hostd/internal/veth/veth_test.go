//go:build linux

package veth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/sandbox"
)

// steps are the destinations of a test: all but 10.0.0.0/8, of which only 10.9.9.9.
var steps = []Step{
	{Allow: true, Nets: []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}},
	{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00::/8")}},
}

// namespace is a network namespace of the test's own, held open.
type namespace struct {
	t  *testing.T
	ns *os.File
}

// newNetns creates a namespace. It has only the connections that the test makes.
func newNetns(t *testing.T) namespace {
	t.Helper()
	r := namespace{t: t}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			r.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		if err == nil {
			err = exec.Command("ip", "link", "set", "lo", "up").Run()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	t.Cleanup(func() { r.ns.Close() })
	return r
}

// in runs f in the namespace.
func (r namespace) in(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must not be reused
		err := netns.Set(netns.NsHandle(r.ns.Fd()))
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (r namespace) ip(commands ...string) {
	r.t.Helper()
	for _, c := range commands {
		if err := r.in(func() error {
			out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}); err != nil {
			r.t.Fatalf("ip %s: %v", c, err)
		}
	}
}

// wire connects two namespaces.
func wire(a, b namespace, nameA, nameB string) {
	a.t.Helper()
	if err := a.in(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: nameB, PeerNamespace: netlink.NsFd(b.ns.Fd())}
		v.Name = nameA
		return netlink.LinkAdd(v)
	}); err != nil {
		a.t.Fatal(err)
	}
}

// serve starts a server that returns the client's address.
func (r namespace) serve(addr string) {
	r.t.Helper()
	var ln net.Listener
	if err := r.in(func() (err error) { ln, err = net.Listen(family(addr), addr); return err }); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			fmt.Fprintln(c, host)
			c.Close()
		}
	}()
}

func family(addr string) string {
	if strings.HasPrefix(addr, "[") {
		return "tcp6"
	}
	return "tcp4"
}

// ask connects from the namespace, and returns the server's response.
func (r namespace) ask(addr string) string { return r.askFor(addr, waitTime) }

// refused is ask for a connection that must not succeed.
func (r namespace) refused(addr string) string { return r.askFor(addr, refusal) }

func (r namespace) askFor(addr string, limit time.Duration) string {
	var line string
	r.in(func() error {
		c, err := net.DialTimeout(family(addr), addr, limit)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		line, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	return strings.TrimSpace(line)
}

// waitTime bounds a connection: an interface that was created within a
// second of another can take one to start. refusal bounds a connection that is expected to be
// dropped.
const (
	waitTime = 20 * time.Second
	refusal  = 1500 * time.Millisecond
)

// testHost is a host with an uplink to a world, all in namespaces.
type testHost struct {
	host, world namespace
	cfg         Config
	net         *Net
}

func newTestHost(t *testing.T) *testHost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	for _, tool := range []string{"nft", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s not found", tool)
		}
	}
	h := &testHost{host: newNetns(t), world: newNetns(t), cfg: Config{Key: t.Name(), Steps: steps}}
	wire(h.host, h.world, "up0", "down0")
	h.host.ip("addr add 198.18.0.1/24 dev up0", "link set up0 up", "route add default via 198.18.0.2")
	h.world.ip("addr add 198.18.0.2/24 dev down0", "link set down0 up", "addr add 8.8.8.8/32 dev lo", "addr add 10.9.9.9/32 dev lo",
		"addr add 10.1.1.1/32 dev lo", "route add 10.213.0.0/16 via 198.18.0.1")
	h.world.serve("0.0.0.0:80")
	h.host.serve("0.0.0.0:80")
	t.Cleanup(func() {
		h.do(t, func(*Net) error {
			kept, err := savedForward()
			os.Remove(kept)
			return err
		})
	})
	h.open(t)
	return h
}

// open starts a run of the host's daemon.
func (h *testHost) open(t *testing.T) {
	t.Helper()
	if err := h.host.in(func() (err error) { h.net, err = Open(t.Context(), h.cfg); return err }); err != nil {
		t.Fatal(err)
	}
}

func (h *testHost) do(t *testing.T, f func(*Net) error) {
	t.Helper()
	if err := h.host.in(func() error { return f(h.net) }); err != nil {
		t.Fatal(err)
	}
}

func (h *testHost) attach(t *testing.T, id sandbox.ID) namespace {
	t.Helper()
	r := newNetns(t)
	h.do(t, func(n *Net) error { return n.Attach(id, r.ns) })
	return r
}

func (h *testHost) detach(t *testing.T, id sandbox.ID) (used sandbox.LinkUsed) {
	t.Helper()
	h.do(t, func(n *Net) (err error) { used, err = n.Detach(id); return err })
	return used
}

// links returns the number of sandboxes' interfaces.
func (h *testHost) links(t *testing.T) (n int) {
	t.Helper()
	h.do(t, func(net *Net) error {
		all, err := net.links()
		n = len(all)
		return err
	})
	return n
}

func TestWhatASandboxReaches(t *testing.T) {
	h := newTestHost(t)
	a, b := h.attach(t, "ia"), h.attach(t, "ib")
	b.serve("0.0.0.0:80")
	for _, tt := range []struct{ what, addr, want string }{
		{"a public address, in the host's name", "8.8.8.8:80", "198.18.0.1"},
		{"an allowed private address", "10.9.9.9:80", "198.18.0.1"},
		{"a private address", "10.1.1.1:80", ""},
		{"the host at the near end", "10.213.0.1:80", ""},
		{"the host at its uplink", "198.18.0.1:80", ""},
		{"another sandbox", "10.213.0.6:80", ""},
		{"the host at another sandbox's near end", "10.213.0.5:80", ""},
		{"itself", "127.0.0.1:80", ""},
	} {
		ask := a.refused
		if tt.want != "" {
			ask = a.ask
		}
		if got := ask(tt.addr); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	if got := h.world.refused("10.213.0.6:80"); got != "" {
		t.Errorf("a sandbox is reachable from outside: %q", got)
	}
	if got := b.ask("10.213.0.6:80"); got == "" {
		t.Error("the server of the other sandbox does not respond") // otherwise the rows above prove nothing
	}
	if got := h.world.ask("198.18.0.1:80"); got == "" {
		t.Error("the rules make the host unreachable")
	}
	// Packets with another sandbox's source address are dropped.
	a.ip("addr add 10.213.0.6/32 dev eth0", "route replace default via 10.213.0.1 src 10.213.0.6")
	if got := a.refused("8.8.8.8:80"); got != "" {
		t.Errorf("with another's address: %q", got)
	}
}

// IPv6 is blocked, even where the host forwards it, has a route, and an address
// at the sandbox's interface.
func TestIPv6IsBlocked(t *testing.T) {
	h := newTestHost(t)
	a := h.attach(t, "ia")
	name := h.cfg.prefix() + "0"
	setting := func(file, value string) (was string) {
		t.Helper()
		path := "/proc/sys/net/ipv6/conf/" + file
		if err := h.host.in(func() error {
			b, err := os.ReadFile(path)
			was = strings.TrimSpace(string(b))
			return errors.Join(err, os.WriteFile(path, []byte(value), 0o644))
		}); err != nil {
			t.Skipf("no IPv6 here: %v", err)
		}
		return was
	}
	if was := setting(name+"/disable_ipv6", "0"); was != "1" {
		t.Errorf("disable_ipv6 of the host's end: %s", was)
	}
	setting("all/forwarding", "1")
	h.host.ip("addr add 2001:db8::1/64 dev up0 nodad", "addr add 2001:db8:a::1/64 dev "+name+" nodad")
	h.world.ip("addr add 2001:db8::2/64 dev down0 nodad", "-6 route add 2001:db8:a::/64 via 2001:db8::1")
	a.ip("addr add 2001:db8:a::2/64 dev eth0 nodad", "-6 route add default via 2001:db8:a::1")
	h.world.serve("[::]:80")
	h.host.serve("[::]:80")
	for _, addr := range []string{"[2001:db8::2]:80", "[2001:db8:a::1]:80", "[2001:db8::1]:80"} {
		if got := a.refused(addr); got != "" {
			t.Errorf("%s is reachable: %s", addr, got)
		}
	}
	if err := h.host.in(func() error { return nft(t.Context(), "delete table inet "+h.cfg.table()+"\n") }); err != nil {
		t.Fatal(err)
	}
	if got := a.ask("[2001:db8::2]:80"); got != "2001:db8:a::2" { // otherwise the rows above prove nothing
		t.Errorf("without rules: %q", got)
	}
}

// The traffic of an interface is counted, from its sandbox's point of view.
func TestInterfacesAreMetered(t *testing.T) {
	h := newTestHost(t)
	a := h.attach(t, "ia")
	h.attach(t, "ib")
	before := h.used(t)["ia"]
	if got := a.ask("8.8.8.8:80"); got == "" {
		t.Fatal("no response")
	}
	h.open(t) // the next run continues the counters
	after := h.used(t)["ia"]
	if after.Index != before.Index || after.Sent < before.Sent+100 || after.Received < before.Received+100 {
		t.Errorf("before restart %+v, after %+v", before, after)
	}
	if last := h.detach(t, "ia"); last.Index != after.Index || last.Sent < after.Sent {
		t.Errorf("after restart %+v, on detach %+v", after, last)
	}
	if left := h.used(t); len(left) != 1 || left["ib"].Index == 0 {
		t.Errorf("remaining: %v", left)
	}
}

func (h *testHost) used(t *testing.T) (used map[sandbox.ID]sandbox.LinkUsed) {
	t.Helper()
	h.do(t, func(n *Net) (err error) { used, err = n.Used(); return err })
	return used
}

func TestInterfacesSurviveRestarts(t *testing.T) {
	h := newTestHost(t)
	a := h.attach(t, "ia")
	h.do(t, func(n *Net) error { return n.Attach("ia", a.ns) })
	if n := h.links(t); n != 1 {
		t.Errorf("%d interfaces for one sandbox", n)
	}
	// A host daemon that was killed, and its next run.
	h.open(t)
	h.do(t, func(n *Net) error { return n.Attach("ia", a.ns) })
	if got, n := a.ask("8.8.8.8:80"), h.links(t); got == "" || n != 1 {
		t.Errorf("after a restart: %q, %d interfaces", got, n)
	}
	h.attach(t, "ib")
	h.detach(t, "ia")
	if got := a.refused("8.8.8.8:80"); got != "" {
		t.Errorf("without an interface: %q", got)
	}
	h.do(t, func(n *Net) error { return n.Attach("ia", a.ns) })
	if got := a.ask("8.8.8.8:80"); got == "" {
		t.Error("no connection after the interface was assigned again")
	}
	h.do(t, func(n *Net) error { return n.Close(t.Context()) })
	if got := a.refused("10.1.1.1:80"); got != "" {
		t.Error("the rules were removed before the sandboxes")
	}
	h.do(t, func(n *Net) error { return n.Sweep(func(sandbox.ID) bool { return false }) })
	if n := h.links(t); n != 0 {
		t.Errorf("%d interfaces remain", n)
	}
	h.do(t, func(n *Net) error { return n.Close(t.Context()) })
	if tables := h.tables(t); tables != "" {
		t.Errorf("tables remain: %s", tables)
	}
}

// Two hosts on one machine may share a range: neither uses the other's addresses, or ends
// its sandboxes' connections.
func TestTwoHostsShareARange(t *testing.T) {
	h := newTestHost(t)
	a := h.attach(t, "ia")
	long := a.hold("8.8.8.8:81", h.world)
	other := *h
	other.cfg.Key += " other"
	other.open(t)
	b := other.attach(t, "ib")
	for name, r := range map[string]namespace{"the first host's": a, "the second's": b, "the first's next": h.attach(t, "ic")} {
		if got := r.ask("8.8.8.8:80"); got != "198.18.0.1" {
			t.Errorf("%s: %q", name, got)
		}
	}
	other.do(t, func(n *Net) error { n.clean(); return nil })
	if err := long(); err != nil {
		t.Errorf("a connection of the first host's sandbox: %v", err)
	}
}

// hold opens a connection to a listener in the world at addr; try sends a word
// and back on it.
func (r namespace) hold(addr string, world namespace) (try func() error) {
	r.t.Helper()
	var ln, c net.Conn
	var l net.Listener
	_, port, _ := net.SplitHostPort(addr)
	err := world.in(func() (err error) { l, err = net.Listen("tcp4", "0.0.0.0:"+port); return err })
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	if err := r.in(func() (err error) { c, err = net.DialTimeout("tcp4", addr, waitTime); return err }); err != nil {
		r.t.Fatal(err)
	}
	if ln, err = l.Accept(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { ln.Close(); c.Close() })
	return func() error {
		at := time.Now().Add(3 * time.Second)
		ln.SetDeadline(at)
		c.SetDeadline(at)
		ln.Write([]byte("x"))
		_, err := c.Read(make([]byte, 1))
		return err
	}
}

// An interface is removed with its sandbox, whether or not a host daemon runs.
func TestInterfaceEndsWithItsSandbox(t *testing.T) {
	h := newTestHost(t)
	r := newNetns(t)
	h.do(t, func(n *Net) error { return n.Attach("ia", r.ns) })
	r.ns.Close()
	for end := time.Now().Add(20 * time.Second); h.links(t) > 0; {
		if time.Now().After(end) {
			t.Fatal("the interface remains")
		}
		runtime.Gosched()
	}
}

func TestRangeIsExhausted(t *testing.T) {
	h := newTestHost(t)
	h.cfg.Range = netip.MustParsePrefix("10.213.0.0/29")
	h.open(t)
	h.attach(t, "ia")
	h.attach(t, "ib")
	r := newNetns(t)
	if err := h.host.in(func() error { return h.net.Attach("ic", r.ns) }); err == nil {
		t.Error("a third sandbox got an interface in a range for two")
	}
	h.detach(t, "ia")
	h.do(t, func(n *Net) error { return n.Attach("ic", r.ns) })
	if got := r.ask("8.8.8.8:80"); got == "" {
		t.Error("a sandbox with a reused address has no connection")
	}
}

// Rules that another program flushes are soon restored.
func TestFlushedRulesAreRestored(t *testing.T) {
	h := newTestHost(t)
	h.cfg.interval = time.Millisecond
	h.open(t)
	a := h.attach(t, "ia")
	h.do(t, func(*Net) error { return exec.Command("nft", "flush", "ruleset").Run() })
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error)
	go func() { kept <- h.host.in(func() error { h.net.Keep(ctx); return nil }) }()
	for end := time.Now().Add(20 * time.Second); h.tables(t) == ""; {
		if time.Now().After(end) {
			t.Fatal("the rules are not restored")
		}
	}
	stop()
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	if got := a.refused("10.1.1.1:80"); got != "" {
		t.Errorf("a private address is reachable: %q", got)
	}
	if got := a.ask("8.8.8.8:80"); got != "198.18.0.1" {
		t.Errorf("public address: %q", got)
	}
}

// The number of a sandbox's connections is limited, so that some remain for others; also when
// the rules are applied again, and without those of the previous user of its addresses.
func TestConnectionsAreCounted(t *testing.T) {
	for name, forgotten := range map[string]bool{"its address is free after a while": true, "its address is the only one": false} {
		t.Run(name, func(t *testing.T) { connectionsAreCounted(t, forgotten) })
	}
}

func connectionsAreCounted(t *testing.T, forgotten bool) {
	h := newTestHost(t)
	h.cfg.conns = 5
	if !forgotten {
		h.cfg.Range = netip.MustParsePrefix("10.213.0.0/29")
	}
	h.open(t)
	a, b := h.attach(t, "ia"), h.attach(t, "ib")
	fill := func(r namespace, most int) (open []net.Conn) {
		t.Helper()
		for range most {
			if err := r.in(func() error {
				c, err := net.DialTimeout("tcp4", "8.8.8.8:80", waitTime)
				open = append(open, c)
				return err
			}); err != nil {
				t.Fatalf("connection %d: %v", len(open), err)
			}
		}
		return open
	}
	open, addr := fill(a, 5), a.addr()
	for _, when := range []string{"at once", "after the rules were applied again"} {
		if got := a.refused("8.8.8.8:80"); got != "" {
			t.Errorf("a connection beyond the limit succeeded %s", when)
		}
		h.open(t)
	}
	if got := b.ask("8.8.8.8:80"); got == "" {
		t.Error("another sandbox has no connection")
	}
	open[0].Close()
	if got := a.ask("8.8.8.8:80"); got == "" {
		t.Error("an ended connection still counts")
	}
	a.ns.Close() // its sandbox ends, and its connections stay
	h.detach(t, "ia")
	if forgotten {
		h.do(t, func(n *Net) error { n.clean(); return nil })
	}
	c := h.attach(t, "ic")
	if addr == "" || c.addr() != addr {
		t.Errorf("the first sandbox's address is not reused: %s, %s", addr, c.addr())
	}
	for _, c := range fill(c, 5) {
		c.Close()
	}
	for _, c := range open {
		c.Close()
	}
}

// addr returns the address of a sandbox's interface.
func (r namespace) addr() (addr string) {
	r.in(func() error {
		l, err := net.InterfaceByName(inside)
		if err != nil {
			return err
		}
		all, err := l.Addrs()
		if err == nil && len(all) > 0 {
			addr = all[0].String()
		}
		return err
	})
	return addr
}

func (h *testHost) tables(t *testing.T) string {
	t.Helper()
	var list []byte
	h.do(t, func(*Net) (err error) { list, err = exec.Command("nft", "list", "tables").Output(); return err })
	return string(list)
}

// A run that assigns no interfaces removes those that others with its key assigned, without
// nft.
func TestRemoveRemovesOnlyOwnInterfaces(t *testing.T) {
	h := newTestHost(t)
	h.attach(t, "ia")
	h.attach(t, "ib")
	theirs := testHost{host: h.host, cfg: Config{Key: "another", Range: netip.MustParsePrefix("10.214.0.0/16")}}
	theirs.open(t)
	theirs.attach(t, "ic")
	t.Setenv("PATH", "")
	h.do(t, func(*Net) error { return Remove(h.cfg.Key) })
	if ours, left := h.links(t), theirs.links(t); ours != 0 || left != 1 {
		t.Errorf("%d of ours and %d of another host's remain", ours, left)
	}
}
