package network

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// listenOn listens on a port of the loopback; nil if the machine lacks the address family.
func listenOn(t *testing.T, ip net.IP, port int) *net.TCPListener {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		return nil
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestDialPort(t *testing.T) {
	inNetwork(t, func() {
		if listenOn(t, net.IPv4(127, 0, 0, 1), 8004) == nil {
			t.Error("no loopback")
			return
		}
		six := listenOn(t, net.IPv6loopback, 8006) != nil
		for target, want := range map[string]kind.Kind{
			"": kind.Invalid, "0": kind.Invalid, "-1": kind.Invalid, "65536": kind.Invalid, "http": kind.Invalid, "8004x": kind.Invalid,
			"8003": kind.Precondition, // nothing listens there
		} {
			if conn, err := dialPort(target); !kind.Is(err, want) || conn != nil {
				t.Errorf("%q: %v, want %v", target, err, want)
			}
		}
		targets := []string{"8004"}
		if six {
			targets = append(targets, "8006")
		}
		for _, target := range targets {
			conn, err := dialPort(target)
			if err != nil {
				t.Errorf("%s: %v", target, err)
				continue
			}
			conn.Close()
		}
	})
}

// TestToPort connects a stream of hostd with a server in the sandbox, which responds to what it
// has read when the other end has closed its half.
func TestToPort(t *testing.T) {
	accepted := make(chan *mux.Stream, 1)
	hostd, _ := muxPair(t, func(s *mux.Stream) { accepted <- s })
	ln := listenOn(t, net.IPv4(127, 0, 0, 1), 0)
	if ln == nil {
		t.Fatal("no loopback")
	}
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		text, _ := io.ReadAll(conn)
		conn.Write(append([]byte("got "), text...))
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	go func() { ToPort(<-accepted) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := hostd.Open(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetDeadline(time.Now().Add(time.Minute))
	if _, err := s.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "got text" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestToAClosedPort: hostd receives the reason as the error of its Open.
func TestToAClosedPort(t *testing.T) {
	hostd, _ := muxPair(t, func(s *mux.Stream) { go ToPort(s) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := hostd.Open(ctx, "none"); !kind.Is(err, kind.Invalid) {
		t.Errorf("got %v, want Invalid", err)
	}
}

// exchange sends text to a port and returns the response.
func exchange(port int, text string) (string, error) {
	conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.CloseWrite(); err != nil {
		return "", err
	}
	got, err := io.ReadAll(conn)
	return string(got), err
}

// TestApplyMovesAndClosesTheProxy: the proxy listens where hostd requests, and processes get its
// address in their environment while it is open.
func TestApplyMovesAndClosesTheProxy(t *testing.T) {
	_, shim := muxPair(t, func(s *mux.Stream) { // hostd's proxy repeats what it reads
		s.Accept()
		go func() {
			defer s.Close()
			io.WriteString(s, s.Target()+":")
			io.Copy(s, s)
		}()
	})
	n := New(opener{shim})
	inNetwork(t, func() {
		for _, step := range []struct {
			name         string
			port         uint16
			open, closed []int
		}{
			{"opened", 3128, []int{3128}, nil},
			{"the same again", 3128, []int{3128}, nil},
			{"moved", 3129, []int{3129}, []int{3128}},
			{"closed", 0, nil, []int{3128, 3129}},
			{"opened again", 3128, []int{3128}, []int{3129}},
			{"closed again", 0, nil, []int{3128}},
		} {
			n.Apply(wire.Network{Proxy: step.port})
			env := map[string]string{}
			n.SetEnv(env)
			var want string
			for _, port := range step.open {
				want = (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
				if got, err := exchange(port, "text"); err != nil || got != wire.TargetProxy+":text" {
					t.Errorf("%s: port %d: %q, %v", step.name, port, got, err)
				}
				want = "http://" + want
			}
			if env["http_proxy"] != want || env["HTTPS_PROXY"] != want {
				t.Errorf("%s: environment %v, want %q", step.name, env, want)
			}
			for _, port := range step.closed {
				if got, err := exchange(port, "text"); err == nil {
					t.Errorf("%s: port %d responds %q", step.name, port, got)
				}
			}
		}
	})
}

// TestApplyRetriesAPortInUse: without the port there is no proxy, and no process is told of one,
// until a later Apply finds the port free.
func TestApplyRetriesAPortInUse(t *testing.T) {
	n := New(nil)
	inNetwork(t, func() {
		other := listenOn(t, net.IPv4(127, 0, 0, 1), 3128)
		for _, free := range []bool{false, true} {
			if free {
				other.Close()
			}
			n.Apply(wire.Network{Proxy: 3128})
			env := map[string]string{}
			if n.SetEnv(env); (len(env) > 0) != free {
				t.Errorf("free %v: environment %v", free, env)
			}
		}
		n.Apply(wire.Network{})
	})
}

// away is a hostd that is not connected.
type away struct{}

func (away) OpenStream(context.Context, string) (*mux.Stream, error) { return nil, io.ErrClosedPipe }

// TestConnectionsEndWhileHostdIsAway: a client sees that its connection is broken, rather than an
// empty response.
func TestConnectionsEndWhileHostdIsAway(t *testing.T) {
	n := New(away{})
	inNetwork(t, func() {
		n.Apply(wire.Network{Proxy: 3128})
		defer n.Apply(wire.Network{})
		var timeout net.Error
		if got, err := exchange(3128, "text"); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestApplySetsTheNameServer writes the file that C libraries read.
func TestApplySetsTheNameServer(t *testing.T) {
	root := rootWith(t, map[string]string{"/etc/resolv.conf": "nameserver 192.0.2.1\n"})
	n := New(nil)
	inRoot(t, root, func() {
		n.Apply(wire.Network{})
		n.Apply(wire.Network{DNS: "10.0.0.1"})
		n.Apply(wire.Network{}) // leaves it
	})
	if got, err := os.ReadFile(filepath.Join(root, "etc/resolv.conf")); err != nil || string(got) != "nameserver 10.0.0.1\n" {
		t.Errorf("%q, %v", got, err)
	}
}
