package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

// names resolves the names of a test; each lookup of a name returns its next result.
type names struct {
	mu      sync.Mutex
	of      map[string][]string
	lookups atomic.Int64
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.lookups.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.of[host]
	if len(all) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(all) > 1 {
		n.of[host] = all[1:]
	}
	var out []netip.Addr
	for s := range strings.SplitSeq(all[0], " ") {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func noAddress(netip.Addr) bool { return false }

// known resolves the only secret.
func known(name string) (string, error) {
	if name != "mine" {
		return "", kind.Newf(kind.Precondition, "", "", "there is no secret %q", name)
	}
	return "canary", nil
}

// plain opens values that were not sealed.
func plain(_ seal.Place, t seal.Text) (string, error) { return string(t), nil }

// newRoute returns a route, and a function that connects to its proxy as a program in
// a sandbox does.
func newRoute(t testing.TB, n *sandbox.Network, allow string, r Resolver) (*Route, func() net.Conn) {
	t.Helper()
	cfg := Config{Resolver: r}
	if allow != "" {
		cfg.Operator.Allow = []netip.Prefix{netip.MustParsePrefix(allow)}
	}
	return newRouteWith(t, n, cfg)
}

func newRouteWith(t testing.TB, n *sandbox.Network, cfg Config) (*Route, func() net.Conn) {
	t.Helper()
	cfg.own = noAddress
	s := NewServer(cfg)
	t.Cleanup(s.Close)
	w := s.Route(NewPolicy(n, "t", plain), sandbox.Markers{Secret: known, Token: known})
	var a, b *mux.Mux
	wakeA, wakeB := make(chan struct{}, 1), make(chan struct{}, 1)
	done := make(chan struct{})
	wake := func(ch chan struct{}) func() {
		return func() {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
	a = mux.New(mux.Config{Even: true, Wake: wake(wakeA)})
	b = mux.New(mux.Config{Wake: wake(wakeB), Accept: func(st *mux.Stream) { go w.Serve(st) }})
	carry := func(from, to *mux.Mux, ch chan struct{}) {
		for {
			select {
			case <-ch:
			case <-done:
				return
			}
			for from.Pending() {
				buf := from.Append(nil, 64<<10)
				for ty, p, rest, ok := mux.Split(buf); ok; ty, p, rest, ok = mux.Split(rest) {
					if err := to.Handle(ty, p); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { carry(a, b, wakeA) })
	wg.Go(func() { carry(b, a, wakeB) })
	t.Cleanup(func() {
		a.Break(io.ErrClosedPipe)
		b.Break(io.ErrClosedPipe)
		close(done)
		wg.Wait()
	})
	return w, func() net.Conn {
		st, err := a.Open(context.Background(), "proxy")
		if err != nil {
			t.Fatal(err)
		}
		st.SetDeadline(time.Now().Add(20 * time.Second))
		return st
	}
}

// through returns an HTTP client that uses the proxy.
func through(t testing.TB, dial func() net.Conn, scheme string) *http.Client {
	t.Helper()
	proxy := &url.URL{Scheme: scheme, Host: "proxy.test:3128"}
	tr := &http.Transport{
		Proxy:       http.ProxyURL(proxy),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

const loopback = "127.0.0.1/32"

func get(t testing.TB, c *http.Client, u string) (int, string, error) {
	t.Helper()
	res, err := c.Get(u)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func hello(t testing.TB) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.Host, r.URL.Path) }))
	t.Cleanup(s.Close)
	return s
}

func portOf(u string) string { return u[strings.LastIndexByte(u, ':')+1:] }

func TestEveryProtocolReachesAllowedHosts(t *testing.T) {
	w, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, &names{of: map[string][]string{"server.test": {"127.0.0.1"}}})
	plain := hello(t)
	secret := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") }))
	defer secret.Close()

	host := "server.test:" + portOf(plain.URL)
	want := "hello " + host + "/x"
	for _, scheme := range []string{"http", "socks5"} {
		if _, got, err := get(t, through(t, dial, scheme), "http://"+host+"/x"); got != want || err != nil {
			t.Errorf("%s: %q, %v", scheme, got, err)
		}
	}
	c := through(t, dial, "http")
	c.Transport.(*http.Transport).TLSClientConfig = secret.Client().Transport.(*http.Transport).TLSClientConfig
	if _, got, err := get(t, c, secret.URL); got != "secret" || err != nil {
		t.Errorf("CONNECT: %q, %v", got, err)
	}
	if sent, received := w.Used(); sent < 100 || received < 100 {
		t.Errorf("counted %d bytes out and %d in", sent, received)
	}
}

// Nothing is ever sent to these addresses: they are checked before they are dialed, and
// a policy that allows everything allows none of them.
func TestNonPublicAddressesAreRefusedInEverySpelling(t *testing.T) {
	all := &sandbox.Network{Internet: true, Allow: []string{"0.0.0.0/0", "*", "169.254.169.254", "10.0.0.0/8", "::/0"}}
	r := &names{of: map[string][]string{
		"private.test": {"10.0.0.1"}, "metadata.test": {"169.254.169.254"}, "mapped.test": {"::ffff:169.254.169.254"},
		"ula.test": {"fd00:ec2::254"}, "local.test": {"127.0.0.1"}, "localhost": {"127.0.0.1"}, "many.test": {"10.0.0.1 ::1 192.168.1.1"},
		"metadata.google.internal": {"169.254.169.254"},
	}}
	w, dial := newRoute(t, all, "", r)
	hosts := []string{
		"127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "169.254.170.2",
		"168.63.129.16", "100.100.100.200", "192.0.0.192", "224.0.0.1", "255.255.255.255", "198.18.0.1",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
		"[2002:a9fe:a9fe::1]", "[2001:0:a9fe:a9fe::1]", "[fd00:ec2::254]", "[fd00::1]", "[fe80::1]", "[fe80::1%25eth0]", "[fec0::1]", "[ff02::1]",
		"[::ffff:0:169.254.169.254]", "[::ffff:0:7f00:1]", "[1::1]", "[4000::1]", "[a000::1]",
		"2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "025177524776", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "127.1", "0", "0x7f.1",
		"169.254.169.254.", "127.0.0.1.", "localhost", "LOCALHOST.", "private.test", "metadata.test", "METADATA.test.", "mapped.test", "ula.test", "local.test",
		"many.test", "metadata.google.internal", "user@169.254.169.254",
	}
	for _, h := range hosts {
		t.Run(h, func(t *testing.T) {
			// Before anything could be sent.
			name, addrs, _ := w.resolve(t.Context(), strings.ReplaceAll(strings.Trim(h, "[]"), "%25", "%"))
			for _, a := range addrs {
				if w.allows(name, a) {
					t.Fatalf("%s may be dialed", a)
				}
			}
			conn := dial()
			defer conn.Close()
			fmt.Fprintf(conn, "CONNECT %s:80 HTTP/1.1\r\nHost: public.test\r\n\r\n", h)
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
			if err != nil || res.StatusCode != 403 && res.StatusCode != 400 {
				t.Errorf("CONNECT: %v, %v", res, err)
			}
			plain := dial()
			defer plain.Close()
			fmt.Fprintf(plain, "GET http://%s/latest/meta-data/ HTTP/1.1\r\nHost: public.test\r\n\r\n", h)
			res, err = http.ReadResponse(bufio.NewReader(plain), nil)
			if err != nil || res.StatusCode != 403 && res.StatusCode != 400 {
				t.Errorf("GET: %v, %v", res, err)
			}
			socks := dial()
			defer socks.Close()
			spelled := strings.Trim(h, "[]")
			socks.Write(append(append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(spelled))}, spelled...), 0, 80))
			var reply [12]byte
			if _, err := io.ReadFull(socks, reply[:]); err != nil || reply[3] == socksOK {
				t.Errorf("SOCKS: %v, %v", reply, err)
			}
		})
	}
}

// A name that resolves to a public address when it is checked and to a private one when it
// is dialed: there is one lookup, and its result is dialed.
func TestRebindingFindsNoSecondLookup(t *testing.T) {
	s := hello(t)
	n := &names{of: map[string][]string{"rebind.test": {"127.0.0.1", "10.0.0.1", "127.0.0.1"}}}
	_, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, n)
	u := "http://rebind.test:" + portOf(s.URL)
	for i, want := range []int{200, 403, 200} {
		if status, got, err := get(t, through(t, dial, "http"), u); status != want || err != nil {
			t.Errorf("request %d: %d %q, %v", i, status, got, err)
		}
	}
	if got := n.lookups.Load(); got != 3 {
		t.Errorf("%d lookups for 3 requests", got)
	}
}

func TestRedirectsAreChecked(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("http://10.0.0.1/", http.StatusFound))
	defer s.Close()
	_, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, &names{})
	if status, got, err := get(t, through(t, dial, "http"), s.URL); status != 403 || err != nil {
		t.Errorf("got %d %q, %v", status, got, err)
	}
}

func TestPolicies(t *testing.T) {
	s := hello(t)
	port := portOf(s.URL)
	of := map[string][]string{"a.test": {"127.0.0.1"}, "b.a.test": {"127.0.0.1"}, "c.test": {"127.0.0.1"}, "two.test": {"10.0.0.1 127.0.0.1"}}
	tests := []struct {
		name, host string
		n          sandbox.Network
		want       int
		resolved   bool
	}{
		{"none", "127.0.0.1", sandbox.Network{}, 403, false},
		{"none by name", "a.test", sandbox.Network{}, 403, false},
		{"open", "a.test", sandbox.Network{Internet: true}, 200, true},
		{"the second address is allowed", "two.test", sandbox.Network{Internet: true}, 200, true},
		{"no such name", "none.test", sandbox.Network{Internet: true}, 502, true},
		{"allowed by name", "a.test", sandbox.Network{Allow: []string{"a.test"}}, 200, true},
		{"another name is not even resolved", "c.test", sandbox.Network{Allow: []string{"a.test"}}, 403, false},
		{"its address is not allowed by its name", "127.0.0.1", sandbox.Network{Allow: []string{"a.test"}}, 403, false},
		{"allowed below a name", "b.a.test", sandbox.Network{Allow: []string{"*.a.test"}}, 200, true},
		{"the name itself is not below it", "a.test", sandbox.Network{Allow: []string{"*.a.test"}}, 403, false},
		{"allowed by prefix", "127.0.0.1", sandbox.Network{Allow: []string{"127.0.0.0/8"}}, 200, false},
		{"allowed by prefix, after resolution", "c.test", sandbox.Network{Allow: []string{"127.0.0.0/8"}}, 200, true},
		{"denied by name", "c.test", sandbox.Network{Internet: true, Deny: []string{"c.test"}}, 403, false},
		{"denied by prefix, after resolution", "c.test", sandbox.Network{Internet: true, Deny: []string{"127.0.0.0/8"}}, 403, true},
		{"allowed wins", "a.test", sandbox.Network{Internet: true, Allow: []string{"a.test"}, Deny: []string{"0.0.0.0/0"}}, 200, true},
		{"all denied", "a.test", sandbox.Network{Internet: true, Deny: []string{"0.0.0.0/0"}}, 403, false},
		{"a rule that cannot be read", "a.test", sandbox.Network{Internet: true, Deny: []string{"?"}}, 403, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := &names{of: of}
			_, dial := newRoute(t, &tt.n, loopback, n)
			status, got, err := get(t, through(t, dial, "http"), "http://"+tt.host+":"+port)
			if status != tt.want || err != nil || n.lookups.Load() > 0 != tt.resolved {
				t.Errorf("got %d %q, %v, resolved %v; want %d, %v", status, got, err, n.lookups.Load() > 0, tt.want, tt.resolved)
			}
		})
	}
}

func TestOperators(t *testing.T) {
	mine := func(a netip.Addr) bool { return a == netip.MustParseAddr("8.8.4.4") }
	tests := []struct {
		allow, addr string
		want        bool
	}{
		{"", "8.8.8.8", true}, {"", "2001:4860:4860::8888", true}, {"", "8.8.4.4", false}, {"", "::ffff:8.8.8.8", true},
		{"8.8.4.4/32", "8.8.4.4", true}, {"10.0.0.0/8", "10.1.1.1", true}, {"10.0.0.0/8", "192.168.0.1", false},
		{"10.0.0.0/8", "::ffff:10.1.1.1", true}, {"0.0.0.0/0", "10.1.1.1", true},
		{"0.0.0.0/0", "169.254.169.254", false}, {"169.254.0.0/16", "169.254.169.254", false}, {"169.254.169.254/32", "169.254.169.254", true},
		{"0.0.0.0/0", "168.63.129.16", false}, {"::/0", "fd00:ec2::254", false}, {"::/0", "fd00::1", true}, {"fe80::/10", "fe80::1", false},
		{"::/0", "fd20:ce::254", false}, {"fd20:ce::/32", "fd20:ce::254", false}, {"fd20:ce::254/128", "fd20:ce::254", true}, {"::/0", "fd20:ce::255", true},
		{"fc00::/7", "fd00:42::42", false}, {"fc00::/7", "fd00:c1::a9fe:a9fe", false}, {"fc00::/7", "fd00:a9fe:a9fe::1", false},
	}
	for _, tt := range tests {
		var o sandbox.Operator
		if tt.allow != "" {
			o.Allow = []netip.Prefix{netip.MustParsePrefix(tt.allow)}
		}
		if got := dialable(&o, netip.MustParseAddr(tt.addr), mine); got != tt.want {
			t.Errorf("operator allows %q: %s %v", tt.allow, tt.addr, got)
		}
	}
}

// A change of policy closes connections that it forbids at once and no others.
func TestPolicyAppliesToOpenConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	n := &names{of: map[string][]string{"a.test": {"127.0.0.1"}, "b.test": {"127.0.0.1"}}}
	w, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, n)
	open := func(name string) net.Conn {
		c := dial()
		fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\n\r\nping", name, portOf(ln.Addr().String()))
		want := "HTTP/1.1 200 Connection established\r\n\r\nping"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
		return c
	}
	a, b := open("a.test"), open("b.test")
	w.SetPolicy(NewPolicy(&sandbox.Network{Allow: []string{"b.test"}}, "t", plain))
	if _, err := a.Read(make([]byte, 1)); err == nil {
		t.Error("a forbidden connection remains open")
	}
	b.Write([]byte("x"))
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Errorf("an allowed connection was closed: %v", err)
	}
}

func TestOtherRequestsAreRefused(t *testing.T) {
	_, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, &names{})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET https://x/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x HTTP/1.1\r\n\r\n", "\x04\x01\x00\x50\r\n\r\n", "nonsense\r\n\r\n"} {
		c := dial()
		io.WriteString(c, request)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != 400 {
			t.Errorf("%q: %v, %v", request, res, err)
		}
		c.Close()
	}
	for _, tt := range []struct{ send, want string }{
		{"\x05\x01\x02", "\x05\xff"},
		{"\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50", "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"\x05\x01\x00\x05\x01\x00\x07", "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00"},
	} {
		c := dial()
		io.WriteString(c, tt.send)
		got, _ := io.ReadAll(c)
		if string(got) != tt.want {
			t.Errorf("%x: got %x, want %x", tt.send, got, tt.want)
		}
	}
}

type readWriter struct {
	io.Reader
	io.Writer
}

func FuzzSocks(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x04name\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		code, target := greet(readWriter{strings.NewReader(string(b)), io.Discard})
		if code != socksOK {
			return
		}
		if _, _, err := net.SplitHostPort(target); err != nil && !strings.ContainsAny(target, "[]:") {
			t.Errorf("%q: %v", target, err)
		}
	})
}

// FuzzHost checks that in every spelling of a host, all that is resolved or dialed was checked.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "0x7f.1", "localhost.", "::ffff:7f00:1", "a.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		n := &names{}
		s := &Server{cfg: Config{Resolver: n, own: noAddress}}
		w := s.Route(NewPolicy(&sandbox.Network{Allow: []string{"only.test"}}, "t", plain), sandbox.Markers{Secret: known, Token: known})
		name, addrs, err := w.resolve(context.Background(), host)
		if n.lookups.Load() > 0 && !strings.EqualFold(strings.TrimSuffix(host, "."), "only.test") {
			t.Errorf("%q was resolved", host)
		}
		for _, a := range addrs {
			if err == nil && w.allows(name, a) {
				t.Errorf("%q may be dialed as %s", host, a)
			}
		}
		if err != nil && !kind.Is(err, kind.Invalid) && !kind.Is(err, kind.Denied) && !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %v", host, err)
		}
	})
}

func BenchmarkConnect(b *testing.B) {
	s := hello(b)
	_, dial := newRoute(b, &sandbox.Network{Internet: true}, loopback, &names{})
	c := through(b, dial, "http")
	for b.Loop() {
		if _, _, err := get(b, c, s.URL); err != nil {
			b.Fatal(err)
		}
	}
}
