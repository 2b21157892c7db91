package main

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
	"github.com/millrace/millrace/internal/cli"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/reaper"
	"github.com/millrace/millrace/services/scheduler"
)

func newRoot(cfg cli.Config) *cobra.Command {
	root := &cobra.Command{
		Use:           "millrace",
		Short:         "Commands in sandboxes, whose every byte is kept and can be read again",
		Version:       cfg.Version,
		SilenceErrors: true,
	}
	root.SetIn(cfg.In)
	root.SetOut(cfg.Out)
	root.SetErr(cfg.Err)
	const services, client = "services", "client"
	root.AddGroup(&cobra.Group{ID: services, Title: "Services:"}, &cobra.Group{ID: client, Title: "Client:"})
	add := func(group string, all ...*cobra.Command) {
		for _, c := range all {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(services, upCommand(&cfg), natsCommand(&cfg), gatewayCommand(&cfg), hostdCommand(&cfg),
		schedulerCommand(&cfg), reaperCommand(&cfg))
	add(client, cli.Commands(cfg)...)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.FlagError(err) })
	cli.Strict(root)
	return root
}

// connected runs a service that lives on the log, once check finds nothing in its
// settings that cannot work.
func connected(cfg *cli.Config, c *common, s *streams, name string, check func() error, run func(context.Context, *events.Log, *slog.Logger) error) func(context.Context) error {
	return func(ctx context.Context) error {
		logger, err := c.logger(cfg)
		if err != nil {
			return err
		}
		if err := cmp.Or(s.check(), check()); err != nil {
			return err
		}
		logger = logger.With("role", name)
		log, err := s.open(ctx, name, logger)
		if err != nil {
			return err
		}
		defer log.Close()
		return run(ctx, log, logger)
	}
}

func gatewayCommand(cfg *cli.Config) *cobra.Command {
	var c common
	var s streams
	var g gateway.Config
	var allow []string
	var w webhooks
	return role(cfg, "gateway", "Serve clients; any number may run", func() time.Duration { return gatewayBound(g.DrainTimeout) }, func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		gatewayFlags(f, &g)
		f.StringSliceVar(&allow, egressAllow, nil, "prefixes that are not public and may be named as a sandbox's own proxy, as hosts allow them")
		w.allowFlag(f)
	}, connected(cfg, &c, &s, "gateway", func() (err error) {
		if g.EgressAllow, err = prefixes(egressAllow, allow); err != nil {
			return err
		}
		if g.WebhookAllow, err = prefixes(webhookAllow, w.allow); err != nil {
			return err
		}
		return checkGateway(&g)
	}, func(ctx context.Context, log *events.Log, logger *slog.Logger) error {
		g.Log, g.Slog, g.Version = log, logger, cfg.Version
		return gateway.Run(ctx, g)
	}))
}

func gatewayFlags(f *pflag.FlagSet, g *gateway.Config) {
	f.StringVar(&g.Listen, "listen", "127.0.0.1:7300", "address for clients")
	f.StringVar(&g.APIKey, "api-key", "", "a key to issue unless it was; better given as MILLRACE_API_KEY")
	f.StringVar(&g.Domain, "domain", "", "domain of sandboxes' host names, <port>-<sandbox>.<domain>; default: with up at a local address localhost:<port>, else the client's own (E2B_DOMAIN, or e2b.app)")
	f.StringVar(&g.Issuer, "issuer", "", "URL at which others find the keys that check sandboxes' tokens: this gateway's, as they reach it; empty: http:// and the address for clients")
	f.DurationVar(&g.QueueTimeout, "queue-timeout", 0, "how long a new sandbox waits while every host is full; 0: 25s")
	f.DurationVar(&g.MaxTimeout, "max-timeout", 0, "the longest a sandbox may be asked to live; 0: a day")
	f.Float64Var(&g.Limits.CPUs, "default-cpus", 0, "CPUs of a sandbox that asks for none; 0: no limit")
	f.Uint32Var(&g.Limits.MemoryMB, "default-memory", 0, "MiB of memory of a sandbox that asks for none; 0: no limit")
	f.Uint32Var(&g.Limits.DiskMB, "default-disk", 0, "MiB of disk of a sandbox that asks for none; 0: no limit")
	f.Uint32Var(&g.Limits.PIDs, "default-pids", 0, "processes of a sandbox that asks for none; 0: the driver's own bound")
	f.StringSliceVar(&g.Registries, "registries", nil, "registries at addresses that are not public from which builds may pull images, as HOST or HOST:PORT")
	f.StringVar(&g.ECREndpoint, "ecr-endpoint", "", "URL of the API that gives passwords for AWS's registries, by a proxy or a VPC endpoint; empty: that of their region")
	f.DurationVar(&g.DrainTimeout, "drain-timeout", 0, "how long open streams may take to end; 0: 10 s")
}

func schedulerCommand(cfg *cli.Config) *cobra.Command {
	var c common
	var s streams
	var sched scheduler.Config
	return role(cfg, "scheduler", "Place sandboxes on hosts; any number may run", always(shortBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		schedulerFlags(f, &sched)
	}, connected(cfg, &c, &s, "scheduler", func() error { return checkScheduler(&sched) }, func(ctx context.Context, log *events.Log, logger *slog.Logger) error {
		logger.Info("scheduler runs")
		sched.Log, sched.Slog = log, logger
		return scheduler.Run(ctx, sched)
	}))
}

func schedulerFlags(f *pflag.FlagSet, s *scheduler.Config) {
	f.Float64Var(&s.CPUOvercommit, "cpu-overcommit", 0, "how often a host's CPUs may be promised to sandboxes with a limit; 0: 16 times")
	f.Float64Var(&s.MemoryOvercommit, "memory-overcommit", 0, "how often a host's memory may be promised to sandboxes with a limit; 0: once")
}

func reaperCommand(cfg *cli.Config) *cobra.Command {
	var c common
	var s streams
	var w webhooks
	var to reaper.Webhooks
	return role(cfg, "reaper", "End what is due; any number may run", always(shortBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		w.flags(f)
	}, connected(cfg, &c, &s, "reaper", func() (err error) {
		to, err = w.config()
		return err
	}, func(ctx context.Context, log *events.Log, logger *slog.Logger) error {
		logger.Info("reaper runs")
		return reaper.Run(ctx, reaper.Config{Log: log, Slog: logger, Webhooks: to})
	}))
}

// webhooks are the settings of deliveries to webhooks.
type webhooks struct {
	allow    []string
	attempts int
}

func (w *webhooks) allowFlag(f *pflag.FlagSet) {
	f.StringSliceVar(&w.allow, webhookAllow, nil, "private addresses that webhooks may use, as 10.1.0.0/16")
}

func (w *webhooks) flags(f *pflag.FlagSet) {
	w.allowFlag(f)
	f.IntVar(&w.attempts, "webhook-attempts", 12, "requests for one event before it counts as failed")
}

func (w *webhooks) config() (to reaper.Webhooks, err error) {
	if w.attempts < 1 {
		return to, fmt.Errorf("--webhook-attempts: %d is less than 1", w.attempts)
	}
	to.Attempts = w.attempts
	to.Allow, err = prefixes(webhookAllow, w.allow)
	return to, err
}

func natsCommand(cfg *cli.Config) *cobra.Command {
	var c common
	var n natsd.Config
	var durability string
	command := role(cfg, "nats", "Run a NATS server with JetStream, alone or as one of a cluster", always(natsBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		f.StringVar(&n.Listen, "listen", "127.0.0.1:4222", "address for services")
		f.StringVar(&n.Dir, "data", "", "directory of its files; required")
		f.StringVar(&n.Name, "name", "", "unique in its cluster; default: this machine's name")
		f.StringVar(&n.Cluster, "cluster", "", "name of its cluster; empty: it is alone")
		f.StringVar(&n.ClusterOn, "cluster-listen", "127.0.0.1:6222", "address for the cluster's other servers")
		f.StringVar(&n.Token, "nats-token", "", "that services and the other servers must show, required off loopback; better given as MILLRACE_NATS_TOKEN")
		f.StringSliceVar(&n.Routes, "routes", nil, "nats://HOST:PORT of the cluster's other servers")
		f.StringVar(&durability, "durability", durabilityPower, "what is stored survives: process (a kill) or power (also a power loss)")
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
		limitMemory(ctx, cfg.Getenv)
		return runNATS(ctx, &n, logger)
	})
	command.Long = fmt.Sprintf(`Run a NATS server with JetStream, alone or as one of a cluster.

SIGTERM ends it within %v: it hands the streams that it leads over to other
servers first. Files of a stream that are damaged are moved to "damaged" in the
data directory once the other two servers of a cluster have the whole stream,
and are replaced by a copy of theirs.`, natsd.StopTimeout)
	return command
}

func runNATS(ctx context.Context, n *natsd.Config, logger *slog.Logger) error {
	srv, err := natsd.StartContext(ctx, *n)
	if err != nil {
		return err
	}
	logger.Info("nats serves", "url", srv.URL())
	select {
	case err := <-srv.Failed():
		return err
	case <-ctx.Done():
	}
	if n.Cluster != "" {
		srv.LameDuck() // the others take over before it is gone
		return nil
	}
	srv.Stop()
	return nil
}
