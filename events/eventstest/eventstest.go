// Package eventstest provides tests with a real NATS server and a log on it.
package eventstest

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/seal"
)

// Server is an embedded server that a test can stop and restart with its stored messages.
// Its methods may be called concurrently.
type Server struct {
	t   testing.TB
	dir string

	mu     sync.Mutex
	srv    *natsd.Server
	listen string // address for clients; empty: in process only
}

// Start runs a server in process until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, &Server{t: t, dir: t.TempDir()})
}

// StartListening is Start with a loopback TCP port, which survives a restart.
func StartListening(t testing.TB) *Server {
	t.Helper()
	return start(t, &Server{t: t, dir: t.TempDir(), listen: FreePorts(t, 1)[0]})
}

func start(t testing.TB, s *Server) *Server {
	t.Helper()
	s.Resume()
	t.Cleanup(s.Stop)
	return s
}

// Stop stops the server; clients keep trying to reconnect.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv != nil {
		s.srv.Stop()
		s.srv = nil
	}
}

// Resume restarts a stopped server on its files.
func (s *Server) Resume() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv != nil {
		return
	}
	srv, err := natsd.Start(natsd.Config{Dir: s.dir, Listen: s.listen})
	if err != nil {
		s.t.Fatalf("start nats: %v", err)
	}
	s.srv = srv
	if s.listen != "" {
		s.listen = strings.TrimPrefix(srv.URL(), "nats://")
	}
}

// Addr returns the TCP address of a server that listens.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listen
}

// Dir returns the directory of the server's files.
func (s *Server) Dir() string { return s.dir }

// Restart calls Stop and Resume.
func (s *Server) Restart() {
	s.Stop()
	s.Resume()
}

// InProcessConn connects to the running server.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil {
		return nil, net.ErrClosed
	}
	return s.srv.InProcessConn()
}

// MasterKey is the source of a fixed master key.
func MasterKey(context.Context, bool) (*seal.Master, error) {
	return seal.ParseMaster(strings.Repeat("5e", seal.KeySize))
}

// Ring returns the ring of values in the log.
func Ring(t testing.TB, log *events.Log) *seal.Ring {
	t.Helper()
	r, err := log.Ring(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Open returns a log on the server, closed when the test ends.
func Open(t testing.TB, s *Server) *events.Log {
	t.Helper()
	return OpenWith(t, s, events.Config{Name: t.Name()})
}

// OpenWith is Open with settings.
func OpenWith(t testing.TB, s *Server, cfg events.Config) *events.Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg.InProcess = s
	if cfg.MasterKey == nil {
		cfg.MasterKey = MasterKey
	}
	log, err := events.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	t.Cleanup(log.Close)
	return log
}

// View returns a view that has caught up and is kept up to date until the test ends.
func View(t testing.TB, log *events.Log) *catalog.View {
	t.Helper()
	view, err := log.OpenView(t.Context())
	if err != nil {
		t.Fatalf("open view: %v", err)
	}
	return view
}
