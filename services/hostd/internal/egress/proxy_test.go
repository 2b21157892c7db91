package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

// socksServer is a SOCKS5 proxy that requires a name and a password, reports the requested
// addresses, and connects to the loopback instead.
func socksServer(t testing.TB) (addr string, received chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	received = make(chan string, 100)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serveSocks(c, received)
			}()
		}
	}()
	return ln.Addr().String(), received
}

func serveSocks(c net.Conn, received chan<- string) {
	r := bufio.NewReader(c)
	var b [256]byte
	if io.ReadFull(r, b[:4]); string(b[:4]) != "\x05\x02\x00\x02" { // with or without credentials
		c.Write([]byte{5, 0xff})
		return
	}
	c.Write([]byte{5, 2})
	io.ReadFull(r, b[:2])
	user := make([]byte, b[1])
	io.ReadFull(r, user)
	n, _ := r.ReadByte()
	password := make([]byte, n)
	io.ReadFull(r, password)
	if string(user) != "user" || string(password) != "canary" {
		c.Write([]byte{1, 1})
		return
	}
	c.Write([]byte{1, 0})
	io.ReadFull(r, b[:4])
	family := b[3]
	host, _ := socksHost(r, family)
	io.ReadFull(r, b[:2])
	port := int(b[0])<<8 | int(b[1])
	received <- fmt.Sprintf("%d %s:%d", family, host, port)
	to, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	defer to.Close()
	c.Write([]byte{5, 0, 0, 3, 4, 'n', 'a', 'm', 'e', 0, 1})
	go io.Copy(to, r)
	io.Copy(c, to)
}

func TestConnectionsUseTheSandboxsProxy(t *testing.T) {
	s := hello(t)
	port := portOf(s.URL)
	addr, received := socksServer(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	go func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "220 mail\r\n")
			c.Close()
		}
	}()
	all := map[string][]string{"a.test": {"127.0.0.1"}, "proxy.test": {"127.0.0.1"}, "private.test": {"10.0.0.1"}}
	proxy := func(at, password string) *sandbox.Proxy {
		return &sandbox.Proxy{Address: at, User: "user", Password: seal.Text(password)}
	}
	named := "proxy.test:" + portOf(addr)
	for _, tt := range []struct {
		name, host string
		n          sandbox.Network
		want       int
		received   string
	}{
		{"by address", "127.0.0.1", sandbox.Network{Internet: true, Proxy: proxy(addr, "canary")}, 200, "1 127.0.0.1:" + port},
		{"by a name with an open policy: resolved here", "a.test", sandbox.Network{Internet: true, Proxy: proxy(named, "canary")}, 200, "1 127.0.0.1:" + port},
		{"by an allowed name: the proxy resolves it", "Far.test", sandbox.Network{Allow: []string{"far.test"}, Proxy: proxy(addr, "canary")}, 200, "3 far.test:" + port},
		{"denied", "127.0.0.1", sandbox.Network{Internet: true, Deny: []string{"127.0.0.1"}, Proxy: proxy(addr, "canary")}, 403, ""},
		{"not public", "10.0.0.1", sandbox.Network{Internet: true, Proxy: proxy(addr, "canary")}, 403, ""},
		{"not public by name", "private.test", sandbox.Network{Internet: true, Proxy: proxy(addr, "canary")}, 403, ""},
		{"wrong password", "127.0.0.1", sandbox.Network{Internet: true, Proxy: proxy(addr, "wrong")}, 502, ""},
		{"not a SOCKS server", "127.0.0.1", sandbox.Network{Internet: true, Proxy: proxy(mute.Addr().String(), "canary")}, 502, ""},
		{"a proxy that is not public", "127.0.0.1", sandbox.Network{Internet: true, Proxy: proxy("10.0.0.1:1080", "canary")}, 502, ""},
		{"a proxy that is not public, by name", "127.0.0.1", sandbox.Network{Internet: true, Proxy: proxy("private.test:1080", "canary")}, 502, ""},
		{"metadata as a proxy", "127.0.0.1", sandbox.Network{Internet: true, Proxy: proxy("169.254.169.254:80", "canary")}, 502, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, dial := newRoute(t, &tt.n, loopback, &names{of: all})
			status, got, err := get(t, through(t, dial, "http"), "http://"+tt.host+":"+port)
			if status != tt.want || err != nil || strings.Contains(got, "canary") {
				t.Errorf("%d %q, %v; want %d", status, got, err, tt.want)
			}
			select {
			case was := <-received:
				if was != tt.received {
					t.Errorf("the proxy got a request for %q, want %q", was, tt.received)
				}
			default:
				if tt.received != "" {
					t.Error("the proxy got no request")
				}
			}
		})
	}
}

// replying is a SOCKS5 proxy that answers one request for an IPv4 address with a code.
func replying(t *testing.T, code byte) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var b [10]byte
		io.ReadFull(c, b[:3])
		c.Write([]byte{5, 0})
		io.ReadFull(c, b[:])
		c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	}()
	return ln.Addr().String()
}

// The kind of an error is read from text of golang.org/x/net/proxy.
func TestRepliesOfTheProxyHaveAKind(t *testing.T) {
	for code, want := range map[byte]kind.Kind{2: kind.Denied, 4: kind.Unavailable, 5: kind.Precondition, 99: kind.Unavailable} {
		n := sandbox.Network{Internet: true, Proxy: &sandbox.Proxy{Address: replying(t, code)}}
		w, _ := newRoute(t, &n, loopback, &names{})
		f, err := w.dial(t.Context(), "127.0.0.1:1", raw)
		if f != nil || !kind.Is(err, want) || strings.Contains(err.Error(), "not a SOCKS5 server") {
			t.Errorf("reply %d: %v, want %v", code, err, want)
		}
	}
}

// Adding or removing a proxy closes connections that did not use it, or did.
func TestProxyChangesApplyToOpenConnections(t *testing.T) {
	s := hello(t)
	addr, received := socksServer(t)
	n := sandbox.Network{Internet: true}
	w, dial := newRoute(t, &n, loopback, &names{})
	open := func() (*bufio.Reader, net.Conn) {
		c := dial()
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", s.Listener.Addr())
		r := bufio.NewReader(c)
		if res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		return r, c
	}
	before, c := open()
	defer c.Close()
	with := sandbox.Network{Internet: true, Proxy: &sandbox.Proxy{Address: addr, User: "user", Password: "canary"}}
	w.SetPolicy(NewPolicy(&with, "t", plain))
	if _, err := before.ReadByte(); err == nil {
		t.Error("a direct connection remains open")
	}
	through, c2 := open()
	defer c2.Close()
	if len(received) != 1 {
		t.Errorf("the proxy got %d requests", len(received))
	}
	w.SetPolicy(NewPolicy(&n, "t", plain))
	if _, err := through.ReadByte(); err == nil {
		t.Error("a connection through the removed proxy remains open")
	}
}
