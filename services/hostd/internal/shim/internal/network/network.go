package network

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	proxyTimeout = 10 * time.Second // for hostd to accept a connection
	maxProxied   = wire.MaxStreams  // connections through the proxy
	acceptPause  = 20 * time.Millisecond
)

// Opener opens streams to hostd.
type Opener interface {
	// OpenStream returns an error if hostd is not connected.
	OpenStream(ctx context.Context, target string) (*mux.Stream, error)
}

// Network is the egress of a sandbox. It is safe for concurrent use.
type Network struct {
	hostd Opener

	mu    sync.Mutex
	proxy *net.TCPListener // nil: no egress
	port  uint16
	ca    caFiles // where the proxy's certificate is installed
}

// New returns a network without egress.
func New(hostd Opener) *Network { return &Network{hostd: hostd} }

// ToPort connects a stream to its target port in the sandbox.
func ToPort(s *mux.Stream) {
	conn, err := dialPort(s.Target())
	if err != nil {
		s.Abort(err)
		return
	}
	s.Accept()
	mux.Join(s, conn)
}

// dialPort connects to the listener on a port, in either address family.
func dialPort(target string) (*net.TCPConn, error) {
	port, err := strconv.ParseUint(target, 10, 16)
	if err != nil || port == 0 {
		return nil, kind.Newf(kind.Invalid, "dial", "", "invalid port %q", target)
	}
	var first error
	for _, ip := range [...]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback} {
		// A net.Dialer would add a timeout, but also link in all of DNS. The caller has a
		// timeout of its own.
		conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: ip, Port: int(port)})
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	if errors.Is(first, syscall.ECONNREFUSED) {
		return nil, kind.New(kind.Precondition, "dial", "", "the port is not open")
	}
	return nil, kind.Newf(kind.Unavailable, "dial", "", "the port does not answer: %s", first)
}

// Apply opens or closes the egress proxy as hostd requests: a listener on that port of
// the loopback, whose connections hostd serves; 0 closes it. Processes started from now on
// get it in their environment. If the port is in use, the next Network frame tries again.
func (n *Network) Apply(to wire.Network) {
	trust := installCA(to.CA)
	if to.DNS != "" {
		writeAtomic("/etc/resolv.conf", []byte("nameserver "+to.DNS+"\n")) //nolint:errcheck // without it, the proxy resolves names
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ca = trust
	if n.proxy != nil {
		if n.port == to.Proxy {
			return
		}
		n.proxy.Close()
		n.proxy, n.port = nil, 0
	}
	if to.Proxy == 0 {
		return
	}
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(to.Proxy)})
	if err != nil {
		return
	}
	n.proxy, n.port = ln, to.Proxy
	go n.acceptProxied(ln)
}

func (n *Network) acceptProxied(ln *net.TCPListener) {
	slots := make(chan struct{}, maxProxied)
	for {
		slots <- struct{}{}
		conn, err := ln.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			<-slots // out of descriptors: wait for open connections to end
			time.Sleep(acceptPause)
			continue
		}
		go func() {
			defer func() { <-slots }()
			n.toProxy(conn)
		}()
	}
}

// toProxy connects a connection to hostd's proxy.
func (n *Network) toProxy(conn *net.TCPConn) {
	ctx, cancel := context.WithTimeout(context.Background(), proxyTimeout)
	defer cancel()
	stream, err := n.hostd.OpenStream(ctx, wire.TargetProxy)
	if err != nil {
		mux.Cut(conn, err)
		return
	}
	mux.Join(stream, conn)
}

// SetEnv sets the variables of the proxy and its certificate, if there is a proxy. All of them
// use http: libraries that need an extra package for SOCKS fail on a socks5 URL.
func (n *Network) SetEnv(env map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil {
		return
	}
	url := "http://127.0.0.1:" + strconv.Itoa(int(n.port))
	for _, name := range [...]string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env[name] = url
	}
	env["no_proxy"], env["NO_PROXY"] = noProxy, noProxy
	n.ca.setEnv(env)
}

const noProxy = "localhost,127.0.0.1,::1"
