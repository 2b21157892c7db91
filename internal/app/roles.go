package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/internal/cli"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/reaper"
	"github.com/millrace/millrace/services/scheduler"
)

func newRoot(cfg command.Config) *cobra.Command {
	root := &cobra.Command{
		Use:           "millrace",
		Short:         "Run commands in sandboxes and keep all output",
		Version:       cfg.Version,
		SilenceErrors: true,
	}
	root.SetIn(cfg.In)
	root.SetOut(cfg.Out)
	root.SetErr(cfg.Err)
	const services, operator, client = "services", "operator", "client"
	root.AddGroup(&cobra.Group{ID: services, Title: "Services:"}, &cobra.Group{ID: operator, Title: "Operation:"}, &cobra.Group{ID: client, Title: "Client:"})
	add := func(group string, all ...*cobra.Command) {
		for _, c := range all {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(services, upCommand(&cfg), natsCommand(&cfg), gatewayCommand(&cfg), hostdCommand(&cfg),
		schedulerCommand(&cfg), reaperCommand(&cfg), execServerCommand(&cfg))
	add(operator, backupCommand(&cfg), restoreCommand(&cfg))
	add(client, cli.Commands(cfg)...)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.FlagError(err) })
	command.Strict(root)
	return root
}

// connected returns a function that checks the settings, connects to the log and runs a
// service.
func connected(cfg *command.Config, c *common, s *streams, name string, check func() error, run func(context.Context, *ops.Role, *events.Log, *slog.Logger) error) func(context.Context) error {
	return func(ctx context.Context) error {
		logger, err := c.logger(cfg)
		if err != nil {
			return err
		}
		if err := cmp.Or(s.check(), s.keys.prepare(cfg.Getenv, s.url), check()); err != nil {
			return err
		}
		logger = logger.With("role", name)
		s.version = cfg.Version
		role := ops.New(name, cfg.Version, name)
		stop, err := c.operation.serve(ctx, role, logger)
		if err != nil {
			return err
		}
		defer stop()
		log, err := s.open(ctx, name, role, logger)
		if err != nil {
			return err
		}
		defer log.Close()
		defer s.keys.announce(ctx, log, name)()
		return run(ctx, role, log, logger)
	}
}

func gatewayCommand(cfg *command.Config) *cobra.Command {
	var c common
	var s streams
	var g gateway.Config
	var allow []string
	var w webhooks
	var u users
	var o outbound
	var b billing
	var s3 bucket
	var tr traces
	return role(cfg, "gateway", "Serve clients; any number can run", func() time.Duration { return gatewayBound(g.DrainTimeout) }, func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		s.keys.flags(f)
		gatewayFlags(f, &g)
		f.StringSliceVar(&allow, egressAllow, nil, "non-public prefixes that sandboxes may use as their own proxy; set hosts alike (default none)")
		w.allowFlag(f)
		u.flags(f)
		o.flags(f)
		b.flags(f)
		s3.flags(f)
		tr.flags(f)
	}, connected(cfg, &c, &s, "gateway", func() (err error) {
		if g.EgressAllow, err = prefixes(egressAllow, allow); err != nil {
			return err
		}
		if g.WebhookAllow, err = prefixes(webhookAllow, w.allow); err != nil {
			return err
		}
		if g.Users, err = u.config(nil); err != nil {
			return err
		}
		if g.Outbound, err = o.config(); err != nil {
			return err
		}
		if g.Billing, err = b.config(); err != nil {
			return err
		}
		if g.Bucket, err = s3.config(); err != nil {
			return err
		}
		spans, err := tr.config(cfg.Getenv)
		if err != nil {
			return err
		}
		g.Tracing = samplerOf(spans)
		return checkGateway(&g)
	}, func(ctx context.Context, role *ops.Role, log *events.Log, logger *slog.Logger) error {
		g.Log, g.Slog, g.Version, g.Ops = log, logger, cfg.Version, role
		return gateway.Run(ctx, g)
	}))
}

func gatewayFlags(f *pflag.FlagSet, g *gateway.Config) {
	f.StringVar(&g.Listen, "listen", "127.0.0.1:7300", "address of the API for clients")
	f.StringVar(&g.APIKey, "api-key", "", "API key to issue if it does not exist; prefer MILLRACE_API_KEY")
	f.StringVar(&g.Public.Domain, "domain", "", "domain of sandboxes' host names, <port>-<sandbox>.<domain> (default localhost:<port> for up at a local address, else the client's own: E2B_DOMAIN or e2b.app)")
	f.StringVar(&g.Public.Issuer, "issuer", "", "URL of this gateway for services that verify sandboxes' identity tokens (default http:// or https:// and --listen)")
	f.StringVar(&g.Public.Cert, "tls-cert", "", "PEM file of a TLS certificate and its chain; read again when it changes (default no TLS)")
	f.StringVar(&g.Public.Key, "tls-key", "", "PEM file of the certificate's private key (required with --tls-cert)")
	f.BoolVar(&g.Public.TLSProxy, "tls-proxy", false, "clients connect through a TLS proxy, so that URLs in responses begin with wss")
	f.StringVar(&g.Public.APIHost, "api-host", "", "host of e2a's API, as HOST or HOST:PORT (default any)")
	f.StringVar(&g.Public.RuntimeHost, "rt-host", "", "host of WebSockets of e2a's sessions, as HOST or HOST:PORT; it serves nothing else (default any)")
	f.DurationVar(&g.QueueTimeout, "queue-timeout", 0, "maximum wait of a new sandbox while all hosts are full (default 25s)")
	f.StringVar(&g.Recording.Record, "record", "", "what is kept of processes: full, meta or none; sandboxes can be stricter (default full)")
	f.StringArrayVar(&g.Recording.Redact, "redact", nil, "pattern of what is replaced in all output and commands; repeatable (default none)")
	f.DurationVar(&g.MaxTimeout, "max-timeout", 0, "maximum timeout of a sandbox (default 24h)")
	f.Float64Var(&g.Limits.CPUs, "default-cpus", 0, "CPU limit of sandboxes without one of their own (default no limit)")
	f.Uint32Var(&g.Limits.MemoryMB, "default-memory", 0, "memory limit in MiB of sandboxes without one of their own (default no limit)")
	f.Uint32Var(&g.Limits.DiskMB, "default-disk", 0, "disk limit in MiB of sandboxes without one of their own (default no limit)")
	f.Uint32Var(&g.Limits.PIDs, "default-pids", 0, "process limit of sandboxes without one of their own (default the driver's)")
	f.StringSliceVar(&g.Registries, "registries", nil, "registries at non-public addresses that builds may pull images from, as HOST or HOST:PORT (default none)")
	f.StringVar(&g.ECREndpoint, "ecr-endpoint", "", "URL of the AWS API for registry passwords, for a proxy or a VPC endpoint (default the registry's region)")
	f.Uint32Var(&g.CodexRetainMB, "codex-retain", 0, "newest MiB of a process's output that codex's process/read returns (default all)")
	f.DurationVar(&g.DrainTimeout, "drain-timeout", 0, "maximum time for open streams to end at a stop (default 10s)")
}

func schedulerCommand(cfg *command.Config) *cobra.Command {
	var c common
	var s streams
	var sched scheduler.Config
	return role(cfg, "scheduler", "Place sandboxes on hosts; any number can run", constantBound(shortBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		schedulerFlags(f, &sched)
	}, connected(cfg, &c, &s, "scheduler", func() error { return checkScheduler(&sched) }, func(ctx context.Context, role *ops.Role, log *events.Log, logger *slog.Logger) error {
		logger.Info("scheduler started")
		sched.Log, sched.Slog, sched.Ops = log, logger, role
		return scheduler.Run(ctx, sched)
	}))
}

func schedulerFlags(f *pflag.FlagSet, s *scheduler.Config) {
	f.Float64Var(&s.CPUOvercommit, "cpu-overcommit", 0, "CPU overcommit ratio for sandboxes with a limit (default 16)")
	f.Float64Var(&s.MemoryOvercommit, "memory-overcommit", 0, "memory overcommit ratio for sandboxes with a limit (default 1)")
}

func reaperCommand(cfg *command.Config) *cobra.Command {
	var c common
	var s streams
	var w webhooks
	var to reaper.Webhooks
	var o outbound
	var backends gateway.OutboundConfig
	var tr traces
	var spans *tracing.Settings
	var grace time.Duration
	return role(cfg, "reaper", "End expired and lost sandboxes; any number can run", constantBound(shortBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		s.keys.flags(f)
		graceFlag(f, &grace)
		w.flags(f)
		o.flags(f)
		tr.flags(f)
	}, connected(cfg, &c, &s, "reaper", func() (err error) {
		if to, err = w.config(); err != nil {
			return err
		}
		if backends, err = o.config(); err != nil {
			return err
		}
		if spans, err = tr.config(cfg.Getenv); err != nil {
			return err
		}
		return checkGrace(grace)
	}, func(ctx context.Context, role *ops.Role, log *events.Log, logger *slog.Logger) error {
		logger.Info("reaper started")
		return reaper.Run(ctx, reaper.Config{Log: log, Ops: role, Slog: logger, KeyGrace: grace, Service: serviceName("reaper"), Webhooks: to, Traces: spans, Outbound: reaper.Outbound(backends)})
	}))
}

// webhooks holds the settings of webhook deliveries.
type webhooks struct {
	allow    []string
	attempts int
}

func (w *webhooks) allowFlag(f *pflag.FlagSet) {
	f.StringSliceVar(&w.allow, webhookAllow, nil, "non-public prefixes that webhooks may use, such as 10.1.0.0/16 (default none)")
}

func (w *webhooks) flags(f *pflag.FlagSet) {
	w.allowFlag(f)
	f.IntVar(&w.attempts, "webhook-attempts", 12, "maximum delivery attempts per event")
}

func (w *webhooks) config() (to reaper.Webhooks, err error) {
	if w.attempts < 1 {
		return to, fmt.Errorf("--webhook-attempts: %d must be at least 1", w.attempts)
	}
	to.Attempts = w.attempts
	to.Allow, err = prefixes(webhookAllow, w.allow)
	return to, err
}

func natsCommand(cfg *command.Config) *cobra.Command {
	var c common
	var n natsd.Config
	var durability string
	command := role(cfg, "nats", "Run a NATS server, alone or in a cluster", constantBound(natsBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		f.StringVar(&n.Listen, "listen", "127.0.0.1:4222", "address for services")
		f.StringVar(&n.Dir, "data", "", "directory of the server's files (required)")
		f.StringVar(&n.Name, "name", "", "name of the server, unique in its cluster (default this machine's name)")
		f.StringVar(&n.Cluster, "cluster", "", "name of the cluster (default a single server)")
		f.StringVar(&n.ClusterOn, "cluster-listen", "127.0.0.1:6222", "address for the cluster's other servers")
		f.StringVar(&n.Token, "nats-token", "", "token that services and other servers must present, required off loopback; prefer MILLRACE_NATS_TOKEN (default none)")
		f.StringSliceVar(&n.Routes, "routes", nil, "URLs of the cluster's other servers, as nats://HOST:PORT (default none)")
		f.StringVar(&durability, "durability", durabilityPower, "failure that stored data survives: process (a kill) or power (also a power loss)")
	}, func(ctx context.Context) error {
		logger, err := c.logger(cfg)
		if err != nil {
			return err
		}
		if n.Dir == "" {
			return errors.New("--data is required")
		}
		if n.Name == "" {
			n.Name = hostName()
		}
		if n.SyncAlways, err = syncAlways(durability); err != nil {
			return err
		}
		unlock, err := lock(ctx, n.Dir)
		if err != nil {
			return err
		}
		defer unlock()
		n.Slog = logger
		r := ops.New("nats", cfg.Version, "nats")
		stop, err := c.operation.serve(ctx, r, logger)
		if err != nil {
			return err
		}
		defer stop()
		limitMemory(ctx, cfg.Getenv)
		return runNATS(ctx, &n, r, logger)
	})
	command.Long = fmt.Sprintf(`Run a NATS server with JetStream, alone or in a cluster.

SIGTERM ends it within %v: it first hands the streams that it leads over to other
servers. Damaged files of a stream are moved to "damaged" in the data directory once
the other two servers of a cluster have the complete stream, and are replaced by a
copy from them.`, natsd.StopTimeout)
	return command
}

func runNATS(ctx context.Context, n *natsd.Config, r *ops.Role, logger *slog.Logger) error {
	srv, err := natsd.StartContext(ctx, *n)
	if err != nil {
		return err
	}
	logger.Info("nats started", "url", srv.URL())
	r.MustRegister(serverMetrics{srv})
	r.Ready("nats", func(context.Context) error { return srv.Healthy() })
	select {
	case err := <-srv.Failed():
		return err
	case <-ctx.Done():
	}
	if n.Cluster != "" {
		srv.LameDuck() // other servers take over before this one stops
		return nil
	}
	srv.Stop()
	return nil
}
