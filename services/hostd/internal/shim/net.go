package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	proxyTimeout = 10 * time.Second // for hostd to accept a connection
	maxProxied   = wire.MaxStreams  // connections through the proxy
	streamTurn   = 32 << 10         // bytes of streams in one write, besides one turn of the processes
)

// newStreams returns the session's end of the mux: hostd opens streams to ports of the
// sandbox, the shim opens streams to the proxy.
func (c *session) newStreams() *mux.Mux {
	return mux.New(mux.Config{
		MaxStreams: wire.MaxStreams,
		MaxOpen:    wire.MaxStreams,
		Window:     wire.WindowStream,
		Wake: func() {
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			c.wake.Signal()
		},
		Accept: func(s *mux.Stream) {
			if s.Target() == wire.TargetFiles {
				go c.s.files.Serve(s)
				return
			}
			go toPort(s)
		},
	})
}

// toPort connects a stream to its target port in the sandbox.
func toPort(s *mux.Stream) {
	conn, err := dialPort(s.Target())
	if err != nil {
		s.Abort(err)
		return
	}
	s.Accept()
	mux.Join(s, conn) //nolint:errcheck // both ends get the error
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

// network opens or closes the egress proxy as hostd requests: a listener on that port of
// the loopback, whose connections hostd serves; 0 closes it. Processes started from now on
// get it in their environment. If the port is in use, the next Network frame tries again.
func (s *Shim) network(n wire.Network) {
	trust := s.installCA(n.CA)
	if n.DNS != "" {
		writeAtomic("/etc/resolv.conf", []byte("nameserver "+n.DNS+"\n")) //nolint:errcheck // without it, the proxy resolves names
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ca = trust
	if s.proxy != nil {
		if s.proxyPort == n.Proxy {
			return
		}
		s.proxy.Close() //nolint:errcheck // nothing to be done
		s.proxy, s.proxyPort = nil, 0
	}
	if n.Proxy == 0 {
		return
	}
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(n.Proxy)})
	if err != nil {
		return
	}
	s.proxy, s.proxyPort = ln, n.Proxy
	go s.acceptProxied(ln)
}

func (s *Shim) acceptProxied(ln *net.TCPListener) {
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
			s.toProxy(conn)
		}()
	}
}

const acceptPause = 20 * time.Millisecond

// toProxy connects a connection to hostd's proxy.
func (s *Shim) toProxy(conn *net.TCPConn) {
	s.mu.Lock()
	c := s.session
	s.mu.Unlock()
	if c == nil {
		mux.Cut(conn, io.ErrClosedPipe)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), proxyTimeout)
	defer cancel()
	stream, err := c.streams.Open(ctx, wire.TargetProxy)
	if err != nil {
		mux.Cut(conn, err)
		return
	}
	mux.Join(stream, conn) //nolint:errcheck // both ends get the error
}

// proxyEnv sets the proxy variables; Shim.mu is held. All of them use http: libraries that
// need an extra package for SOCKS fail on a socks5 URL.
func (s *Shim) proxyEnv(env map[string]string) {
	if s.proxy == nil {
		return
	}
	url := "http://127.0.0.1:" + strconv.Itoa(int(s.proxyPort))
	for _, name := range [...]string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env[name] = url
	}
	env["no_proxy"], env["NO_PROXY"] = noProxy, noProxy
	s.ca.setEnv(env)
}

const noProxy = "localhost,127.0.0.1,::1"
