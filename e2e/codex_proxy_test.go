package e2e_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// codexProxy forwards connections to a gateway on loopback and records what the gateway has
// sent to the client.
type codexProxy struct {
	ln net.Listener
	to string

	mu   sync.Mutex
	sent bytes.Buffer
}

// newCodexProxy returns a proxy and a client of the gateway behind it.
func newCodexProxy(t *testing.T, a *rig.API) (*codexProxy, *rig.API) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &codexProxy{ln: ln, to: strings.TrimPrefix(a.URL, "http://")}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go p.forward(conn)
		}
	}()
	return p, &rig.API{URL: "http://" + ln.Addr().String(), Key: a.Key}
}

func (p *codexProxy) forward(client net.Conn) {
	defer client.Close()
	gateway, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer gateway.Close()
	go func() {
		io.Copy(gateway, client)
		gateway.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := gateway.Read(buf)
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
		p.mu.Lock()
		p.sent.Write(buf[:n])
		p.mu.Unlock()
	}
}

// count returns how often the gateway has sent a text to the client.
func (p *codexProxy) count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Count(p.sent.Bytes(), []byte(text))
}
