package link_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// serve serves a loopback port with f, one call per connection. A shim without a network of
// its own reaches it as a port of the sandbox.
func serve(t testing.TB, network, addr string, f func(net.Conn)) (port string) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f(c)
		}
	}()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

func echo(c net.Conn) {
	io.Copy(c, c)
	c.Close()
}

// read reads the shim's messages, without which its streams would block.
func read(c *link.Conn) <-chan link.Message {
	ch := make(chan link.Message, 1024)
	go func() {
		defer close(ch)
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			ch <- m
		}
	}()
	return ch
}

func openPort(t testing.TB, c *link.Conn, port string) (*mux.Stream, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return c.Open(ctx, port)
}

func TestStreamsReachPorts(t *testing.T) {
	c := attached(t, &link.Pool{})
	read(c)
	for name, where := range map[string][2]string{"IPv4": {"tcp4", "127.0.0.1:0"}, "IPv6": {"tcp6", "[::1]:0"}} {
		t.Run(name, func(t *testing.T) {
			s, err := openPort(t, c, serve(t, where[0], where[1], echo))
			if err != nil {
				t.Fatal(err)
			}
			want := rand.Text() + strings.Repeat("bytes ", 1<<17)
			go func() {
				io.WriteString(s, want)
				s.CloseWrite()
			}()
			got, err := io.ReadAll(s)
			if err != nil || string(got) != want {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
			}
		})
	}
}

func TestOpenPortErrors(t *testing.T) {
	c := attached(t, &link.Pool{})
	read(c)
	for target, want := range map[string]kind.Kind{"1": kind.Precondition, "0": kind.Invalid, "70000": kind.Invalid, "x": kind.Invalid, "": kind.Invalid} {
		if _, err := openPort(t, c, target); !kind.Is(err, want) {
			t.Errorf("port %q: %v, want %v", target, err, want)
		}
	}
}

// TestResetIsNotEOF: a server in the sandbox that dies in the middle of an answer must not
// look like one that finished it.
func TestResetIsNotEOF(t *testing.T) {
	c := attached(t, &link.Pool{})
	read(c)
	s, err := openPort(t, c, serve(t, "tcp4", "127.0.0.1:0", func(c net.Conn) {
		io.WriteString(c, "half")
		var b [1]byte
		c.Read(b[:])
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}))
	if err != nil {
		t.Fatal(err)
	}
	var half [4]byte
	if _, err := io.ReadFull(s, half[:]); err != nil {
		t.Fatal(err)
	}
	s.Write([]byte("x"))
	if n, err := s.Read(half[:]); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %d, %v", n, err)
	}
}

// proxied returns a shim with an egress proxy on a free port.
func proxied(t *testing.T, accept func(*mux.Stream)) (c *link.Conn, port string) {
	c = attachedFor(t, &link.Pool{}, accept)
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := free.Addr().(*net.TCPAddr).Port
	free.Close()
	c.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, &wire.Network{Proxy: uint16(p)}) })
	return c, strconv.Itoa(p)
}

func TestEgressReachesHostd(t *testing.T) {
	c, port := proxied(t, func(s *mux.Stream) {
		if s.Target() != wire.TargetProxy {
			s.Abort(kind.New(kind.Denied, "", "", ""))
			return
		}
		s.Accept()
		go func() {
			io.WriteString(s, "from hostd")
			s.Close()
		}()
	})
	script := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%s; cat <&3; echo " $http_proxy $HTTPS_PROXY $no_proxy"`, port)
	token := start(c, 1, process.Spec{Cmd: "/bin/bash", Args: []string{"-c", script}})
	want := "from hostd http://127.0.0.1:" + port + " http://127.0.0.1:" + port + " localhost,127.0.0.1,::1\n"
	if got := output(t, read(c), token); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEgressCloses(t *testing.T) {
	c, port := proxied(t, nil)
	c.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, &wire.Network{}) })
	script := fmt.Sprintf(`(exec 3<>/dev/tcp/127.0.0.1/%s) 2>/dev/null || echo "closed $http_proxy"`, port)
	token := start(c, 1, process.Spec{Cmd: "/bin/bash", Args: []string{"-c", script}})
	if got, want := output(t, read(c), token), "closed \n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// output returns everything that a process prints.
func output(t *testing.T, ch <-chan link.Message, token string) string {
	t.Helper()
	var out strings.Builder
	late := time.After(20 * time.Second)
	for {
		select {
		case m, ok := <-ch:
			if !ok {
				t.Fatal("the shim is gone")
			}
			if m.Token != token {
				continue
			}
			switch b := m.Event.Body.(type) {
			case process.Wrote:
				out.Write(b.Data)
			case process.Finished:
				return out.String()
			}
		case <-late:
			t.Fatalf("no end after %q", out.String())
		}
	}
}

func TestHostileStreams(t *testing.T) {
	hello := wire.AppendHello(nil, &wire.Hello{})
	head := func(t byte, payload ...byte) []byte {
		return append([]byte{byte(len(payload)), 0, 0, 0, t, 0, 0, 0}, payload...)
	}
	tests := map[string][]byte{
		"data of no stream":    head(130, 1, 0, 0, 0, 'x'),
		"a stream of hostd's":  head(128, 2, 0, 0, 0, 0, 0, 0, 0),
		"an unknown type":      head(200, 1, 0, 0, 0),
		"without an id":        head(131),
		"credit for no stream": head(129, 9, 0, 0, 0, 1, 0, 0, 0),
	}
	for name, frame := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := connFrom(t, append(append([]byte(nil), hello...), frame...))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Next(); !errors.Is(err, link.ErrHostile) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func BenchmarkPort(b *testing.B) {
	c := attached(b, &link.Pool{})
	read(c)
	s, err := openPort(b, c, serve(b, "tcp4", "127.0.0.1:0", func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}))
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 32<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
}

// BenchmarkPortEcho measures the round trip of a byte through a port.
func BenchmarkPortEcho(b *testing.B) {
	c := attached(b, &link.Pool{})
	read(c)
	s, err := openPort(b, c, serve(b, "tcp4", "127.0.0.1:0", echo))
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1)
	for b.Loop() {
		s.Write(buf)
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
}
