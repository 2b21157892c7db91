package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/gateway/internal/admin"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/metrics"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// Config configures a gateway. Log is required; the zero value of another field is its
// default.
type Config struct {
	Log  *events.Log
	View *catalog.View // view of Log, which must stay open until Run returns; default: its own

	Listener net.Listener // closed by Run; default: listens on Listen
	Listen   string       // HOST:PORT; default 127.0.0.1:7300

	// APIKey is issued as a key of DefaultTenant unless it exists; see [CheckAPIKey]. It may
	// be empty if the log holds at least one key: without any key, Run fails.
	APIKey string

	// KeyPair returns the tenant and the secret of an access key, and false if it does not
	// exist. Default: those in the log.
	KeyPair func(accessKey string) (tenant, secret string, ok bool)

	Version string // version of this program, as GET / reports it

	Public PublicConfig // how clients reach the gateway

	// Recording is what is kept of the processes of new sandboxes.
	Recording Recording
	// Tracing is that of the reaper: with it, processes continue the spans that the reaper exports.
	Tracing tracing.Sampler
	// QueueTimeout is the maximum wait of a new sandbox while every host is full; default 25 s.
	QueueTimeout time.Duration

	MaxTimeout time.Duration // maximum lifetime of a sandbox; default 24 h
	Limits     Limits        // limits of a sandbox whose request sets none
	MaxBody    int           // maximum bytes of a request; default 16 MiB

	// CodexRetainMB is how many MiB of a process's output codex's process/read returns, the newest;
	// 0: all.
	CodexRetainMB uint32

	// Registries are the registries at non-public addresses from which images may be pulled,
	// as HOST or HOST:PORT.
	Registries []string

	// ECREndpoint is the URL of the API that issues passwords for AWS's registries; default:
	// that of their region.
	ECREndpoint string

	// EgressAllow are the non-public addresses that may be set as a sandbox's own proxy, as
	// hosts allow them.
	EgressAllow  []netip.Prefix
	WebhookAllow []netip.Prefix // non-public addresses that webhooks may have

	Users    UsersConfig    // how people sign up and log in
	Outbound OutboundConfig // requests to URLs of tenants
	Billing  BillingConfig  // what usage costs
	Bucket   *Bucket        // of the files of workspaces; nil: they are in the log's object store

	// DrainTimeout is the maximum time for open streams and requests to end after ctx has
	// ended; default 10 s.
	DrainTimeout time.Duration

	Ops        *ops.Role           // receives the gateway's metrics, and whether it is ready; default: its own
	Ready      func(addr net.Addr) // called once the gateway serves; may be nil
	ReadyAfter <-chan struct{}     // /readyz fails until it is closed; nil: it succeeds at once
	Slog       *slog.Logger
}

// Limits of a sandbox; 0 is no limit.
type Limits = limits.Default

// Minimum values of a sandbox's limits, and of Config.Limits.
const (
	MinCPUs   = limits.MinCPUs
	MinMemory = limits.MinMemory // MiB
	MinPIDs   = limits.MinPIDs
)

// DefaultTenant owns the configured keys. Their users are operators: they have access to
// hosts, metrics and the events of all tenants.
const DefaultTenant = "default"

const (
	defaultListen  = "127.0.0.1:7300"
	defaultMaxBody = 16 << 20
	defaultDrain   = 10 * time.Second
)

func setDefaults(cfg *Config) {
	cfg.Listen = cmp.Or(cfg.Listen, defaultListen)
	cfg.MaxBody = cmp.Or(max(cfg.MaxBody, 0), defaultMaxBody)
	cfg.DrainTimeout = cmp.Or(max(cfg.DrainTimeout, 0), defaultDrain)
	if cfg.Ops == nil {
		cfg.Ops = ops.New("gateway", cfg.Version)
	}
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
}

// Run serves until ctx ends, then drains: it ends every open stream in a way that makes the
// client reconnect. It returns nil after a drain, also if streams had to be cut because they
// did not end in time.
func Run(ctx context.Context, cfg Config) error {
	setDefaults(&cfg)
	ln, err := listen(ctx, &cfg)
	if err != nil {
		return err
	}
	defer ln.Close()
	served, err := wrap(ln, &cfg)
	if err != nil {
		return err
	}
	// The view is needed until the drain is over.
	viewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := open(ctx, viewing, &cfg); err != nil {
		return err
	}
	if len(cfg.View.Keys("")) == 0 {
		return errors.New("no API key exists, so no request could be served: set MILLRACE_API_KEY to a new one, made with: echo e2b_$(openssl rand -hex 20)")
	}
	if !loopback(ln.Addr()) && !cfg.Public.TLS() {
		cfg.Slog.Warn("listening without TLS off loopback: the network can read API keys and output; set --tls-cert, or put a TLS proxy in front", "address", ln.Addr().String())
	}
	if cfg.Public.Issuer, err = issuer(&cfg.Public, ln.Addr()); err != nil {
		return err
	}
	secret, ring, err := clusterKeys(ctx, cfg.Log)
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	if cfg.Users.TestMode && !loopback(ln.Addr()) {
		return fmt.Errorf("the test mode of sign-ups returns codes to any client, so it is only allowed on a loopback address, and not on %s", ln.Addr())
	}
	latencies := metrics.NewLatencies()
	ops := operations.New(core.Config{
		Log: cfg.Log, View: cfg.View, Secret: secret, Sealer: ring, SharedTenant: DefaultTenant,
		QueueTimeout: cfg.QueueTimeout, Recording: cfg.Recording.settings(), Latencies: latencies.Observers(), Slog: cfg.Slog, Tracing: cfg.Tracing,
	})
	defer ops.Close()
	if cfg.KeyPair == nil {
		cfg.KeyPair = ops.Accounts.KeyPair
	}
	s := newServer(&cfg, ops, latencies, loopback(ln.Addr()))
	if err := s.users.Start(ctx, viewing); err != nil {
		return fmt.Errorf("open accounts: %w", err)
	}
	if err := s.conversations.Start(viewing); err != nil {
		return fmt.Errorf("open conversations: %w", err)
	}
	if err := s.books.start(ctx, viewing); err != nil {
		return fmt.Errorf("open usage: %w", err)
	}
	if err := s.shares.Start(ctx, viewing); err != nil {
		return fmt.Errorf("open shares: %w", err)
	}
	if err := s.workspaces.start(ctx, viewing); err != nil {
		return fmt.Errorf("open workspaces: %w", err)
	}
	// The trail has the denials of the drain, too, and clients use sandboxes until it ends.
	draining, stop := context.WithCancel(viewing)
	var work sync.WaitGroup
	work.Go(func() { s.audit.Run(draining) })
	work.Go(func() { ops.Lifecycle.KeepHeld(draining) })
	work.Go(func() { s.workspaces.mounts.Run(draining) })
	err = s.run(ctx, served)
	stop()
	work.Wait()
	return err
}

// CheckAPIKey returns an error if a key from the configuration is too weak or has a form
// that E2B's SDKs refuse. The error does not contain the key.
func CheckAPIKey(key string) error {
	digits, ok := strings.CutPrefix(key, "e2b_")
	if !ok || len(digits) < minKeyDigits || strings.Trim(digits, "0123456789abcdef") != "" {
		return fmt.Errorf("the API key must be e2b_ and at least %d lower-case hex digits, for example the output of: echo e2b_$(openssl rand -hex 20)", minKeyDigits)
	}
	return nil
}

const minKeyDigits = 32 // 128 bits

// clusterKeys returns the cluster secret for sandboxes' tokens, and the ring for values in
// records.
func clusterKeys(ctx context.Context, log *events.Log) (token []byte, ring *seal.Ring, err error) {
	if token, err = log.Secret(ctx, "sandbox-token"); err != nil {
		return nil, nil, err
	}
	ring, err = log.Ring(ctx)
	return token, ring, err
}

func listen(ctx context.Context, cfg *Config) (net.Listener, error) {
	if cfg.Listener != nil {
		return cfg.Listener, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// open issues the configured key and opens a view that contains it.
func open(ctx, viewing context.Context, cfg *Config) error {
	if cfg.APIKey != "" {
		k := catalog.KeyOf(DefaultTenant, cfg.APIKey, time.Now())
		if err := cfg.Log.IssueKey(ctx, k); err != nil {
			return fmt.Errorf("issue the first key: %w", err)
		}
	}
	if cfg.View == nil {
		view, err := cfg.Log.OpenView(viewing)
		if err != nil {
			return fmt.Errorf("open view: %w", err)
		}
		cfg.View = view
	}
	if err := cfg.View.Sync(ctx); err != nil {
		return fmt.Errorf("open view: %w", err)
	}
	if cfg.APIKey != "" && !slices.ContainsFunc(cfg.View.Keys(DefaultTenant), func(k catalog.Key) bool {
		return !k.Revoked && k.ID == catalog.KeyOf(DefaultTenant, cfg.APIKey, time.Time{}).ID
	}) {
		cfg.Slog.Warn("the configured API key has been revoked and is rejected")
	}
	return nil
}

// issuer returns the URL of the issuer of sandboxes' tokens: the configured one, or the
// address of the listener; empty if it listens on all addresses.
func issuer(p *PublicConfig, addr net.Addr) (string, error) {
	if p.Issuer != "" {
		return sandbox.ParseIssuer(p.Issuer)
	}
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return "", nil
	}
	return p.Scheme() + "://" + addr.String(), nil
}

// loopback reports whether addr is reachable from this machine only.
func loopback(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return addr.Network() == "memory" // fasthttp's listener for tests
}

// run serves and drains.
func (s *server) run(ctx context.Context, ln net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ops.Procs.Run(ctx) })
	g.Go(func() error { return s.cfg.Log.MonitorStreams(ctx) })
	g.Go(func() error { return s.builds.Run(ctx) })
	g.Go(func() error { s.ops.Core.Sealer.Keep(ctx); return nil })
	g.Go(func() error { return s.keeper.Run(ctx) })
	g.Go(func() error { return s.bai.Run(ctx) })
	g.Go(func() error { return s.counts.Share(ctx, s.cfg.Log.Tally(), s.cfg.Slog) })
	g.Go(func() error { return s.ops.Accounts.Run(ctx) })
	g.Go(func() error { return s.users.Run(ctx) })
	g.Go(func() error { return s.bundles.Run(ctx) })
	g.Go(func() error { return s.rotator.Run(ctx) })
	g.Go(func() error { return s.conversations.Run(ctx) })
	g.Go(func() error { return s.agents.Run(ctx) })
	g.Go(func() error { return s.shares.Run(ctx) })
	s.workspaces.run(ctx, g)
	g.Go(func() error { return s.books.run(ctx) })
	g.Go(func() error {
		if err := s.app.Listener(ln); err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		s.drain(context.WithoutCancel(ctx))
		ln.Close()
		return nil
	})
	s.cfg.Ops.Ready("gateway", s.admin.Ready)
	if s.cfg.Ready != nil {
		s.cfg.Ready(ln.Addr())
	}
	s.cfg.Slog.Info("gateway started", "addr", ln.Addr().String())
	return g.Wait()
}

// drain ends streams first, so that their clients reconnect to another gateway while this
// one still serves requests; then it stops.
func (s *server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	s.admin.Drain()
	if err := s.streams.Drain(ctx); err != nil {
		s.cfg.Slog.Warn("drain streams failed", "err", err)
	}
	defer time.AfterFunc(httpconn.UnusedGrace, s.unused.Close).Stop()
	err := s.app.ShutdownWithContext(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !kind.Is(err, kind.Deadline) {
		s.cfg.Slog.Warn("shut down server failed", "err", err)
	}
}

// DocsURL is the address of the documentation.
const DocsURL = admin.DocsURL
