// Package natsd runs the NATS server that Millrace embeds, so that one command on one
// machine is the whole product. It is the same server that a cluster runs; the rest of
// Millrace does not depend on the difference.
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

// Config configures a server. The zero value of a field selects its default.
type Config struct {
	Dir        string   // directory of JetStream's files; required
	Listen     string   // HOST:PORT for clients; empty: in-process only
	Name       string   // unique in its cluster; default "millrace"
	Cluster    string   // name of the cluster; empty: a single server
	ClusterOn  string   // HOST:PORT for the other servers
	Routes     []string // nats://HOST:PORT of the other servers
	Token      string   // required from services and other servers; mandatory unless on loopback
	MaxStore   int64    // maximum bytes of all streams; default three quarters of the disk space that is free or used by them
	SyncAlways bool     // sync every append to disk before its ack (0.25 ms)
	Slog       *slog.Logger
}

// Server is a running NATS server. Its methods may be called concurrently.
type Server struct {
	cfg          Config
	ns           atomic.Pointer[server.Server]
	writeFailed  chan struct{} // signaled after a failed write
	stuck        chan struct{} // signaled when a copy of a stream waits for a leader to catch up with
	limitReached chan struct{} // signaled after an append beyond the limit
	stop         func()        // ends repair
	repairDone   chan struct{} // closed when repair has ended
	fail         chan error    // receives the error after which the server cannot be started again

	given       int64 // the limit of the running server; used by the goroutine of repair only
	stopTimeout time.Duration
}

const (
	readyTimeout = 30 * time.Second
	syncInterval = time.Second // maximum loss in a power failure without SyncAlways
	maxPayload   = 2 << 20

	// A peer whose machine or network is down sends nothing, not even a reset. It is
	// detected after three pings. Clients detect a silent server themselves, within 3 s
	// (events.Log). The other servers of a cluster elect leaders without it in any case, so
	// they can wait for one that is only short of CPU.
	clusterPing = 2 * time.Second
	clientPing  = 10 * time.Second
	pingsOut    = 2
)

// StartContext is Start until ctx ends. A server that reads its files takes seconds per GB
// and cannot be interrupted: it is abandoned, because the process is about to exit.
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

// Start runs a server and returns when it accepts clients; in a cluster that is before the
// cluster has a leader.
func Start(cfg Config) (*Server, error) {
	s := &Server{
		cfg: cfg, writeFailed: make(chan struct{}, 1), limitReached: make(chan struct{}, 1), stuck: make(chan struct{}, 1), repairDone: make(chan struct{}),
		fail: make(chan error, 1), stopTimeout: StopTimeout,
	}
	ns, err := s.start()
	if err != nil {
		return nil, err
	}
	s.ns.Store(ns)
	// Clients reconnect to the same address after a restart.
	if cfg.Listen != "" {
		s.cfg.Listen = ns.Addr().String()
	}
	if cfg.Cluster != "" {
		s.cfg.ClusterOn = ns.ClusterAddr().String()
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.repair(ctx)
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
			return nil, fmt.Errorf("nats server: %s is not a loopback address: a token is required", addr)
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
		MaxPending:    256 << 20, // a live reader that lags catches up by direct get instead of being disconnected
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

// name returns the server's name.
func (cfg *Config) name() string {
	if cfg.Name == "" {
		return "millrace"
	}
	return cfg.Name
}

// clusterUser is the user name for authentication between servers of a cluster.
const clusterUser = "millrace"

// loopback reports whether an address is reachable from this machine only.
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

// InProcessConn connects without a socket. It makes *Server a provider for
// events.Config.InProcess.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.Load().InProcessConn() }

// URL returns the address for clients; "" if the server does not listen.
func (s *Server) URL() string {
	if ns := s.ns.Load(); ns.Addr() != nil {
		return ns.ClientURL()
	}
	return ""
}

// Failed returns a channel that receives the error after which the server has stopped and
// this process cannot start it again. The process must exit.
func (s *Server) Failed() <-chan error { return s.fail }

// Leads reports whether this server leads a stream of its cluster.
func (s *Server) Leads(stream string) bool {
	return s.ns.Load().JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}

// Stats are the current numbers of a server.
type Stats struct {
	Connections      int
	SlowConsumers    uint64 // connections that were closed because they read too slowly, since the start
	Bytes, MaxBytes  uint64 // stored in files, and how many may be
	Memory           uint64 // bytes stored in memory
	Streams, Leading int    // streams that the server has, and those that it leads
	Problems         int    // findings of the server's own health check
}

// Stats returns the current numbers.
func (s *Server) Stats() (Stats, error) {
	ns := s.ns.Load()
	js, err := ns.Jsz(&server.JSzOptions{Streams: true, Accounts: true})
	if err != nil {
		return Stats{}, err
	}
	out := Stats{
		Connections: ns.NumClients(), SlowConsumers: uint64(max(ns.NumSlowConsumers(), 0)),
		Bytes: js.Store, MaxBytes: uint64(max(js.Config.MaxStore, 0)), Memory: js.Memory, Streams: js.Streams,
		Problems: len(problems(ns)),
	}
	for _, a := range js.AccountDetails {
		for _, d := range a.Streams {
			if d.Cluster == nil || d.Cluster.Leader == ns.Name() || d.Cluster.Leader == "" && s.cfg.Cluster == "" {
				out.Leading++
			}
		}
	}
	return out, nil
}

// Healthy returns an error if the server cannot serve all of its streams.
func (s *Server) Healthy() error {
	if all := problems(s.ns.Load()); len(all) > 0 {
		return fmt.Errorf("%d problems; the first: %s", len(all), all[0].text)
	}
	return nil
}
