package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/seal/sealtest"
)

// site is a server of example.com, over TLS and not, that returns each request.
type site struct{ secure, plain *httptest.Server }

func newSite(t testing.TB) site {
	t.Helper()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %q %q %s", r.Host, r.Header["Authorization"], r.Header["X-Own"], r.Proto)
	})
	s := site{httptest.NewUnstartedServer(echo), httptest.NewServer(echo)}
	s.secure.EnableHTTP2 = true
	s.secure.StartTLS()
	t.Cleanup(s.secure.Close)
	t.Cleanup(s.plain.Close)
	return s
}

func (s site) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.secure.Certificate())
	return pool
}

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := OpenAuthority(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// transformed returns a network that sets headers for a domain: name, value, name...
func transformed(domain string, headers ...string) sandbox.Network {
	t := sandbox.Transform{Domain: domain}
	for i := 0; i < len(headers); i += 2 {
		t.Headers = append(t.Headers, sandbox.Header{Name: headers[i], Value: seal.Text(headers[i+1])})
	}
	return sandbox.Network{Internet: true, Transforms: []sandbox.Transform{t}}
}

// insider is what a program in a sandbox has: a route to a site, and trust in the
// proxy's authority and in the site's own.
type insider struct {
	route *Route
	dial  func() net.Conn
	tls   *tls.Config
}

func inside(t testing.TB, n *sandbox.Network, s site) insider {
	t.Helper()
	a := authority(t)
	all := map[string][]string{"example.com": {"127.0.0.1"}, "other.test": {"127.0.0.1"}, "a.example.com": {"127.0.0.1"}}
	w, dial := newRouteWith(t, n, Config{
		Resolver: &names{of: all}, Authority: a, Roots: s.roots(), Operator: sandbox.Operator{Allow: []netip.Prefix{netip.MustParsePrefix(loopback)}},
	})
	trusts := s.roots()
	trusts.AppendCertsFromPEM(a.PEM())
	return insider{w, dial, &tls.Config{RootCAs: trusts, MinVersion: tls.VersionTLS12}}
}

func (in insider) client(t testing.TB, scheme string, h2 bool) *http.Client {
	t.Helper()
	c := through(t, in.dial, scheme)
	tr := c.Transport.(*http.Transport)
	tr.TLSClientConfig, tr.ForceAttemptHTTP2 = in.tls.Clone(), h2
	return c
}

func TestTransformsSetHeaders(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "authorization", "Bearer canary", "X-Own", "ours")
	in := inside(t, &n, s)
	for _, tt := range []struct {
		name, proxy, url, want string
		h2                     bool
	}{
		{"https", "http", "https://example.com:" + portOf(s.secure.URL), `["Bearer canary"] ["ours"] HTTP/2.0`, false},
		{"https by h2", "http", "https://example.com:" + portOf(s.secure.URL), `["Bearer canary"] ["ours"] HTTP/2.0`, true},
		{"https by SOCKS", "socks5", "https://EXAMPLE.com:" + portOf(s.secure.URL), `["Bearer canary"] ["ours"] HTTP/2.0`, true},
		{"http", "http", "http://example.com:" + portOf(s.plain.URL), `["Bearer canary"] ["ours"] HTTP/1.1`, false},
		{"http by SOCKS", "socks5", "http://example.com:" + portOf(s.plain.URL), `["Bearer canary"] ["ours"] HTTP/1.1`, false},
		{"another name of the host", "http", "http://other.test:" + portOf(s.plain.URL), `[] ["mine"] HTTP/1.1`, false},
		{"its address, https", "http", s.secure.URL, `[] ["mine"] HTTP/1.1`, false},
		{"below the name", "http", "http://a.example.com:" + portOf(s.plain.URL), `[] ["mine"] HTTP/1.1`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in.client(t, tt.proxy, tt.h2)
			for range 2 { // the second on the same connection
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, tt.url+"/x", strings.NewReader("body"))
				req.Header.Set("x-own", "mine")
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if !strings.HasSuffix(string(got), tt.want) || err != nil || tt.h2 != (res.ProtoMajor == 2) {
					t.Errorf("%s: %s, %v; want %s", res.Proto, got, err, tt.want)
				}
			}
		})
	}
}

// Headers can name secrets; a request that needs a missing one is not
// sent.
func TestHeadersNameSecrets(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "Authorization", "Bearer ${e2b.secrets.mine}")
	in := inside(t, &n, s)
	for _, u := range []string{"https://example.com:" + portOf(s.secure.URL), "http://example.com:" + portOf(s.plain.URL)} {
		c := in.client(t, "http", false)
		in.route.SetPolicy(NewPolicy(&n, "t", plain))
		if status, got, err := get(t, c, u); status != 200 || !strings.Contains(got, `["Bearer canary"]`) || err != nil {
			t.Errorf("%s: %d %q, %v", u, status, got, err)
		}
		missing := transformed("example.com", "X-Own", "y", "Authorization", "${e2b.secrets.theirs}")
		in.route.SetPolicy(NewPolicy(&missing, "t", plain))
		if status, got, err := get(t, c, u); status != 502 || !strings.Contains(got, `no secret "theirs"`) || err != nil {
			t.Errorf("%s without its secret: %d %q, %v", u, status, got, err)
		}
	}
}

func TestMostSpecificTransformApplies(t *testing.T) {
	n := sandbox.Network{}
	for _, d := range []string{"a.test", "a.test", "*.a.test", "*.b.a.test", "*.test"} {
		n.Transforms = append(n.Transforms, transformed(d, "X", fmt.Sprint(d, len(n.Transforms))).Transforms...)
	}
	n.Transforms = append(n.Transforms, sandbox.Transform{Domain: "none.test"})
	p := NewPolicy(&n, "t", plain)
	for name, want := range map[string]string{
		"a.test": "[{X a.test0} {X a.test1}]", "x.a.test": "[{X *.a.test2}]", "x.b.a.test": "[{X *.b.a.test3}]", "y.x.b.a.test": "[{X *.b.a.test3}]",
		"b.a.test": "[{X *.a.test2}]", "c.test": "[{X *.test4}]", "test": "[]", "none.test": "[]", "": "[]",
	} {
		if got := fmt.Sprint(p.headers(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// A transform applies to the next request, also on an open connection.
func TestTransformsApplyToOpenConnections(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "Authorization", "one")
	in := inside(t, &n, s)
	c := in.client(t, "http", true)
	u := "https://example.com:" + portOf(s.secure.URL)
	for _, value := range []string{"one", "two", ""} {
		n := sandbox.Network{Internet: true}
		want := "[]"
		if value != "" {
			n, want = transformed("example.com", "Authorization", value), `["`+value+`"]`
		}
		in.route.SetPolicy(NewPolicy(&n, "t", plain))
		if status, got, err := get(t, c, u); status != 200 || !strings.Contains(got, want) || err != nil {
			t.Errorf("%q: %d %s, %v", value, status, got, err)
		}
	}
}

// A connection whose bytes are not parsed must be closed when they are to be
// transformed.
func TestNewTransformClosesRawConnections(t *testing.T) {
	s := newSite(t)
	in := inside(t, &sandbox.Network{Internet: true}, s)
	conn := in.dial()
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT example.com:%s HTTP/1.1\r\n\r\n", portOf(s.secure.URL))
	r := bufio.NewReader(conn)
	if res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	n := transformed("*.com", "X", "y")
	in.route.SetPolicy(NewPolicy(&n, "t", plain))
	if _, err := r.ReadByte(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
}

// A transform's values are for the host that was checked, not for others
// at its address.
func TestRequestsForOthersAreMisdirected(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "Authorization", "canary")
	in := inside(t, &n, s)
	for _, target := range []string{s.secure.URL, s.plain.URL} {
		for _, host := range []string{"other.test", "example.com.other.test", "127.0.0.1", "", "a.example.com"} {
			conn := in.dial()
			fmt.Fprintf(conn, "CONNECT example.com:%s HTTP/1.1\r\n\r\n", portOf(target))
			if res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect}); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
			if strings.HasPrefix(target, "https") {
				cfg := in.tls.Clone()
				cfg.ServerName = "example.com"
				conn = tls.Client(conn, cfg)
			}
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || res.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("%s for %q: %v, %v", target, host, res, err)
			}
			conn.Close()
		}
	}
}

// A host without a valid certificate gets nothing.
func TestImpostorDoesNotGetTheSecret(t *testing.T) {
	received := make(chan string, 10)
	s := newSite(t)
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.Header.Get("Authorization") }))
	defer impostor.Close()
	n := transformed("other.test", "Authorization", "canary")
	in := inside(t, &n, s) // whose certificate is for example.com
	status, got, err := get(t, in.client(t, "http", false), "https://other.test:"+portOf(impostor.URL))
	if status != http.StatusBadGateway || err != nil || strings.Contains(got, "canary") || len(received) > 0 {
		t.Errorf("%d %q, %v; received %d requests", status, got, err, len(received))
	}
}

// Only HTTP is possible with a host that has transforms.
func TestOnlyHTTPIsPossibleWithTransforms(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "Authorization", "canary")
	in := inside(t, &n, s)
	for _, data := range []string{"SSH-2.0-x\r\n\r\n", "\x16\x03\x01nonsense", "\x00\x00"} {
		conn := in.dial()
		fmt.Fprintf(conn, "CONNECT example.com:%s HTTP/1.1\r\n\r\n%s", portOf(s.plain.URL), data)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		got, _ := io.ReadAll(conn)
		if _, answer, _ := strings.Cut(string(got), "\r\n\r\n"); strings.Contains(answer, "200 OK") || strings.Contains(answer, "canary") {
			t.Errorf("%q: %q", data, answer)
		}
		conn.Close()
	}
}

// A switch to WebSocket is possible. Any other protocol is not: requests
// sent in it would not be transformed.
func TestSwitchedProtocolsOfTransformedRequests(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := r.Header.Get("Upgrade")
		if to == "" {
			fmt.Fprint(w, "as ever")
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s\n", to, r.Header.Get("Authorization"))
		rw.Flush()
		io.Copy(c, rw)
	}))
	server.StartTLS()
	defer server.Close()
	n := transformed("example.com", "Authorization", "canary")
	in := inside(t, &n, site{secure: server})
	for to, want := range map[string]int{"websocket": 101, "WebSocket": 101, "h2c": 200, "websocket, h2c": 200, "echo": 200} {
		conn := in.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "CONNECT example.com:%s HTTP/1.1\r\n\r\n", portOf(server.URL))
		if res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect}); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		cfg := in.tls.Clone()
		cfg.ServerName = "example.com"
		secure := tls.Client(conn, cfg)
		fmt.Fprintf(secure, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", to)
		r := bufio.NewReader(secure)
		if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != want {
			t.Errorf("%s: %v, %v; want %d", to, res, err, want)
			continue
		}
		if want != 101 {
			continue
		}
		io.WriteString(secure, "ping\n")
		for _, want := range []string{"canary\n", "ping\n"} {
			if got, err := r.ReadString('\n'); got != want || err != nil {
				t.Errorf("%s: %q, %v; want %q", to, got, err, want)
			}
		}
	}
}

// A plain request goes to the host exactly as it is written, not to a normalized form of
// it, whose transform would be missing.
func TestNamesAreNotNormalized(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "Authorization", "canary")
	in := inside(t, &n, s)
	for _, name := range []string{"\uff45xample.com", "%EF%BD%85xample.com", "example\u3002com"} {
		c := in.dial()
		fmt.Fprintf(c, "GET http://%s:%s/ HTTP/1.1\r\nHost: x\r\nAuthorization: mine\r\n\r\n", name, portOf(s.plain.URL))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %v, %v", name, res, err)
		}
		c.Close()
	}
}

// A truncated response is recognizable as such through CONNECT.
func TestBrokenConnectionIsNotAnEnd(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "half")
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}()
	_, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, &names{})
	c := dial()
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", ln.Addr())
	want := "HTTP/1.1 200 Connection established\r\n\r\nhalf"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v", got, err)
	}
	io.WriteString(c, "x")
	if n, err := c.Read(got); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestAuthorityIsReused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	a, err := OpenAuthority(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	b, err := OpenAuthority(path)
	if err != nil || string(b.PEM()) != string(a.PEM()) {
		t.Errorf("another one: %v", err)
	}
	if strings.Contains(string(a.PEM()), "KEY") {
		t.Error("the key is exposed")
	}
	leaf, err := b.leaf("a.test")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM())
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "a.test", Roots: pool}); err != nil {
		t.Error(err)
	}
	if again, err := b.leaf("a.test"); again != leaf || err != nil {
		t.Errorf("a certificate is made twice: %v", err)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := OpenAuthority(path); err != nil || string(c.PEM()) == string(a.PEM()) {
		t.Errorf("a damaged one: %v", err)
	}
}

func TestUnreadableHeadersCloseTheRoute(t *testing.T) {
	ring := sealtest.Ring(t)
	h, err := sandbox.ParseHeader(ring, "t", "a.test", "X", "canary")
	if err != nil || strings.Contains(string(h.Value), "canary") {
		t.Fatalf("%q, %v", h.Value, err)
	}
	n := sandbox.Network{Internet: true, Transforms: []sandbox.Transform{{Domain: "a.test", Headers: []sandbox.Header{h}}}}
	if p := NewPolicy(&n, "t", ring.Open); !p.Any() || fmt.Sprint(p.headers("a.test")) != "[{X canary}]" {
		t.Error("the policy cannot be opened")
	}
	if NewPolicy(&n, "t", sealtest.Ring(t).Open).Any() {
		t.Error("the route is open without its transforms")
	}
	if NewPolicy(&n, "other", ring.Open).Any() {
		t.Error("another tenant's values are opened")
	}
}
