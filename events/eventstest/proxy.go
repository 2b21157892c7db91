package eventstest

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
)

// Proxy forwards TCP connections to a server and can drop the server's responses. Its
// methods may be called concurrently.
type Proxy struct {
	ln    net.Listener
	to    string
	muted atomic.Bool
	frost atomic.Bool
	death atomic.Pointer[death]

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// StartProxy forwards connections to addr until the test ends.
func StartProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{ln: ln, to: addr, conns: make(map[net.Conn]struct{})}
	go p.accept()
	t.Cleanup(func() {
		ln.Close()
		p.Cut()
	})
	return p
}

// URL returns the address for clients.
func (p *Proxy) URL() string { return "nats://" + p.ln.Addr().String() }

// Mute discards what the server sends, until Unmute. Requests still arrive.
func (p *Proxy) Mute() { p.muted.Store(true) }

// Unmute ends Mute. It cuts connections that lost data, because what follows on them cannot
// be parsed.
func (p *Proxy) Unmute() {
	p.muted.Store(false)
	p.Cut()
}

// Freeze drops both directions from now on, like a stopped server or a network that drops
// packets. Connections stay open and new ones are accepted.
func (p *Proxy) Freeze() { p.frost.Store(true) }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.to)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[s] = struct{}{}, struct{}{}
		p.mu.Unlock()
		go p.copy(&publishes{to: s, proxy: p}, c, &p.frost, &p.frost)
		go p.copy(c, s, &p.muted, &p.frost)
	}
}

// copy forwards until either side ends, except while one of the flags is set.
func (p *Proxy) copy(to io.WriteCloser, from io.ReadCloser, lose ...*atomic.Bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if lose[0].Load() || lose[1].Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Open returns a log on the server behind the proxy, closed when the test ends.
func (p *Proxy) Open(t testing.TB) *events.Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	log, err := events.Open(ctx, events.Config{URL: p.URL(), Name: t.Name(), MasterKey: MasterKey})
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	t.Cleanup(log.Close)
	return log
}
