package outbound_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/outbound"
)

// E-044, E-045.
func TestCheckOfLiterals(t *testing.T) {
	p := &outbound.Policy{Resolver: server(t, func(string) []netip.Addr { return nil })}
	for _, raw := range []string{
		"https://8.8.8.8/x", "https://8.8.8.8:/", "https://8.8.8.8:65535/", "https://8.8.8.8.:8443/", "https://[2606:4700::1111]/", "https://[::ffff:8.8.8.8]/",
		"https://chat.example.com/persist?a=b", "HTTPS://Chat.Example.COM./", "https://x_y.example/", "https://xn--bcher-kva.example/",
	} {
		if err := p.Check(t.Context(), "url", raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{
		// not an https URL
		"", "chat.example.com", "http://8.8.8.8/", "ftp://8.8.8.8/", "https:", "https://", "https:///x", "https:8.8.8.8", "//8.8.8.8/",
		"https://8.8.8.8:port/", "https://8.8.8.8:0/", "https://8.8.8.8:65536/", "https://8.8.8.8:-1/", "https://a b/", "https://8.8.8.8\\@x/", "https://%38.8.8.8/", "https://[::1/", "https://x\n/",
		"https://" + strings.Repeat("a", 2048),
		// ranges that are not public
		"https://127.0.0.1/", "https://127.255.255.254/", "https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/",
		"https://192.168.0.1/", "https://169.254.169.254/latest/meta-data", "https://100.100.100.200/", "https://100.64.0.1/", "https://0.0.0.0/", "https://0.1.2.3/",
		"https://224.0.0.1/", "https://255.255.255.255/", "https://168.63.129.16/", "https://192.0.0.192/",
		"https://[::1]/", "https://[::]/", "https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fc00::1]/", "https://[fd00:ec2::254]/", "https://[ff02::1]/",
		// the same in other spellings
		"https://[::ffff:10.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
		"https://2130706433/", "https://0177.0.0.1/", "https://0x7f.0.0.1/", "https://0x7f000001/", "https://127.1/", "https://127.0.1/", "https://017700000001/",
		"https://127.0.0.0x1/", "https://0/", "https://0x/", "https://10.0.0.1./", "https://127.0.0.1../", "https://①②⑦.⓪.⓪.①/", "https://127。0。0。1/", "https://127.0.0.1%00/",
		"https://chat.example.com@10.0.0.1/", "https://chat.example.com:443@10.0.0.1/", "https://a@chat.example.com/", "https://10.0.0.1#@chat.example.com/",
		"https://localhost/", "https://LOCALHOST./", "https://a.localhost:8443/", "https://a..example/", "https://.example/", "https://ⓛocalhost/",
	} {
		if err := p.Check(t.Context(), "url", raw); !kind.Is(err, kind.Invalid) || !strings.HasPrefix(kind.Message(err), "url ") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	p.Operator.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	if err := p.Check(t.Context(), "url", "https://127.0.0.1/"); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
	if err := p.Check(t.Context(), "url", "https://127.0.0.2/"); !kind.Is(err, kind.Invalid) {
		t.Errorf("an address beside the allowed one: %v", err)
	}
}

// E-046.
func TestCheckOfNames(t *testing.T) {
	names := map[string][]netip.Addr{
		"public.test.":  {netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2606:4700::1111")},
		"private.test.": {netip.MustParseAddr("10.0.0.1")}, "mixed.test.": {netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.0.0.1")},
		"mixed6.test.": {netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("fc00::1")},
	}
	p := &outbound.Policy{Resolver: server(t, func(name string) []netip.Addr { return names[name] })}
	for host, ok := range map[string]bool{
		"public.test": true, "PUBLIC.test.": true, "none.test": true, "private.test": false, "mixed.test": false, "mixed6.test": false, "private.test.": false,
	} {
		if err := p.Check(t.Context(), "url", "https://"+host+"/x"); (err == nil) != ok || err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// E-047: a name server that changes its answer after the check gains nothing.
func TestTheDialIsChecked(t *testing.T) {
	var reached atomic.Bool
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	var addr atomic.Pointer[netip.Addr]
	set := func(s string) {
		a := netip.MustParseAddr(s)
		addr.Store(&a)
	}
	set("8.8.8.8")
	p := &outbound.Policy{Resolver: server(t, func(string) []netip.Addr { return []netip.Addr{*addr.Load()} })}
	if err := p.Check(t.Context(), "url", "https://flips.test:"+port); err != nil {
		t.Fatal(err)
	}
	set("127.0.0.1")
	resp, err := p.Client().Do(request(t, "https://flips.test:"+port))
	if err == nil {
		resp.Body.Close()
	}
	var denied *kind.Error
	if !errors.As(err, &denied) || denied.Kind != kind.Denied || reached.Load() {
		t.Errorf("%v, reached %v; want it to be denied", err, reached.Load())
	}
}

// A redirect must lead to a URL that the check accepts.
func TestRedirectsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		to   string
		want string // part of the error
	}{
		{"https://10.0.0.1/", "not public"}, {"http://8.8.8.8/", "https"}, {"https://private.test/", "not public"}, {"", "too often"},
	} {
		srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := tt.to
			if to == "" {
				to = "https://" + r.Host + "/"
			}
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}))
		p := &outbound.Policy{
			Operator: sandbox.Operator{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
			Resolver: server(t, func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.1")} }),
		}
		client := p.Client()
		client.Transport.(*http.Transport).TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
		resp, err := client.Do(request(t, srv.URL))
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("a redirect to %q: %v, want %q", tt.to, err, tt.want)
		}
		srv.Close()
	}
}

func request(t *testing.T, url string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// server returns a resolver whose name server responds with what find returns.
func server(t *testing.T, find func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			answer(&m, find)
			if raw, err := m.Pack(); err == nil {
				conn.WriteTo(raw, from)
			}
		}
	}()
	return outbound.ResolverAt(conn.LocalAddr().String())
}

func answer(m *dnsmessage.Message, find func(name string) []netip.Addr) {
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	for _, a := range find(strings.ToLower(q.Name.String())) {
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
}
