// Package natsd runs the NATS server that Millrace embeds, so that one command
// on one machine is the whole product. It is the same server that a cluster
// runs; nothing else in Millrace knows the difference.
package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config says how to run a server. The zero value of a field is its default.
type Config struct {
	Dir        string   // of JetStream's files; required
	Listen     string   // HOST:PORT for clients; empty: in process only
	Name       string   // unique in its cluster; default "millrace"
	Cluster    string   // name of the cluster; empty: a single server
	ClusterOn  string   // HOST:PORT for the other servers
	Routes     []string // nats://HOST:PORT of the other servers
	Token      string   // services and the other servers must show it; required off loopback
	MaxStore   int64    // bytes that streams can be given; default three quarters of what is free on the disk or theirs
	SyncAlways bool     // every append is on the disk before it is acked (0.25 ms)
	Slog       *slog.Logger
}

// Server is a running NATS server. Its methods may be called at the same time.
type Server struct {
	cfg  Config
	ns   atomic.Pointer[server.Server]
	hurt chan struct{} // has a value when something could not be written
	full chan struct{} // has one when something was refused because of the limit
	stop func()        // ends mend
	over chan struct{} // closed when mend has ended
	fail chan error    // receives the error after which the server cannot be started again

	given       int64 // the limit of the running server; only mend's goroutine uses it
	stopTimeout time.Duration
}

const (
	readyTimeout = 30 * time.Second
	syncInterval = time.Second // the most a machine's power loss costs without SyncAlways
	maxPayload   = 2 << 20

	// A peer whose machine or network is gone sends nothing, not even a reset. It is noticed
	// after three pings. Clients notice a silent server themselves, within 3 s (events.Log);
	// the others of a cluster elect leaders without it in any case, so that they can wait for
	// one that is merely starved of CPU.
	clusterPing = 2 * time.Second
	clientPing  = 10 * time.Second
	pingsOut    = 2
)

// StartContext is Start until ctx ends. A server that reads its files takes seconds a GB and
// cannot be interrupted: it is left behind, for a process that exits.
func StartContext(ctx context.Context, cfg Config) (*Server, error) {
	type result struct {
		s   *Server
		err error
	}
	started := make(chan result, 1)
	go func() {
		s, err := Start(cfg)
		started <- result{s, err}
	}()
	select {
	case r := <-started:
		return r.s, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Start runs a server and returns when it serves; in a cluster that is before
// the cluster has a leader.
func Start(cfg Config) (*Server, error) {
	s := &Server{
		cfg: cfg, hurt: make(chan struct{}, 1), full: make(chan struct{}, 1), over: make(chan struct{}),
		fail: make(chan error, 1), stopTimeout: StopTimeout,
	}
	ns, err := s.start()
	if err != nil {
		return nil, err
	}
	s.ns.Store(ns)
	// Who comes back finds it where it was.
	if cfg.Listen != "" {
		s.cfg.Listen = ns.Addr().String()
	}
	if cfg.Cluster != "" {
		s.cfg.ClusterOn = ns.ClusterAddr().String()
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.mend(ctx)
	return s, nil
}

func (s *Server) start() (*server.Server, error) {
	opts, err := options(&s.cfg)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	s.given = s.limit()
	opts.JetStreamMaxStore = s.given
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	ns.SetLoggerV2(s.logger(), false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(readyTimeout) {
		ns.Shutdown()
		return nil, errors.New("nats server: not ready in time")
	}
	if !ns.JetStreamEnabled() {
		ns.Shutdown()
		return nil, errors.New("nats server: no JetStream: " + s.cfg.Dir)
	}
	return ns, nil
}

func options(cfg *Config) (*server.Options, error) {
	for _, addr := range []string{cfg.Listen, cfg.ClusterOn} {
		if addr != "" && cfg.Token == "" && !loopback(addr) {
			return nil, fmt.Errorf("nats server: %s is no loopback address: it must not be open to all, give a token", addr)
		}
	}
	opts := &server.Options{
		ServerName:    cfg.name(),
		DontListen:    cfg.Listen == "",
		JetStream:     true,
		StoreDir:      cfg.Dir,
		SyncInterval:  syncInterval,
		SyncAlways:    cfg.SyncAlways,
		MaxPayload:    maxPayload,
		MaxPending:    256 << 20, // a live reader that lags is caught up by direct get, not cut off
		Authorization: cfg.Token,
		NoSigs:        true,
		PingInterval:  clientPing,
		MaxPingsOut:   pingsOut,

		LameDuckGracePeriod: lameGrace,
		LameDuckDuration:    lameGrace + lameClose,
	}
	if cfg.Listen != "" {
		host, port, err := hostPort(cfg.Listen)
		if err != nil {
			return nil, err
		}
		opts.Host, opts.Port = host, port
	}
	if cfg.Cluster == "" {
		return opts, nil
	}
	host, port, err := hostPort(cfg.ClusterOn)
	if err != nil {
		return nil, err
	}
	opts.Cluster = server.ClusterOpts{Name: cfg.Cluster, Host: host, Port: port, PingInterval: clusterPing, MaxPingsOut: pingsOut}
	if cfg.Token != "" {
		opts.Cluster.Username, opts.Cluster.Password = clusterUser, cfg.Token
	}
	for _, r := range cfg.Routes {
		u, err := url.Parse(r)
		if err != nil {
			return nil, fmt.Errorf("route %q: %w", r, err)
		}
		if cfg.Token != "" {
			u.User = url.UserPassword(clusterUser, cfg.Token)
		}
		opts.Routes = append(opts.Routes, u)
	}
	return opts, nil
}

// name is the server's name.
func (cfg *Config) name() string {
	if cfg.Name == "" {
		return "millrace"
	}
	return cfg.Name
}

// clusterUser is the name under which the servers of a cluster show their token.
const clusterUser = "millrace"

// loopback reports whether only this machine can reach an address.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func hostPort(s string) (string, int, error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", s, err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", s, err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// InProcessConn connects without a socket; it makes *Server the provider that
// events.Config.InProcess wants.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.Load().InProcessConn() }

// URL is where clients connect; empty if the server does not listen.
func (s *Server) URL() string {
	if ns := s.ns.Load(); ns.Addr() != nil {
		return ns.ClientURL()
	}
	return ""
}

// Failed receives the error after which the server does not run any more, and cannot be
// started again by this process. The process must exit.
func (s *Server) Failed() <-chan error { return s.fail }

// Leads reports whether this server leads a stream of its cluster.
func (s *Server) Leads(stream string) bool {
	return s.ns.Load().JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}
