package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/checkup"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/hosttune"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/hostd"
	"github.com/millrace/millrace/services/reaper"
	"github.com/millrace/millrace/services/scheduler"
)

// up runs everything in one process.
type up struct {
	cfg        *command.Config
	common     common
	streams    streams
	gateway    gateway.Config
	scheduler  scheduler.Config
	host       host
	webhooks   webhooks
	deliver    reaper.Webhooks
	users      users
	outbound   outbound
	billing    billing
	bucket     bucket
	traces     traces
	spans      *tracing.Settings // nil: none
	data       string
	durability string
	listenNATS string        // address of the NATS server, for backups; empty: none
	grace      time.Duration // of replaced data keys
	log        *slog.Logger
	ops        *ops.Role              // of all services
	ends       *events.Ends           // shared by both connections: the server has no others
	ready      func(url string) error // runs once all services are ready; nil: prints the banner
}

// upHost is the name of up's only host.
const upHost = "local"

func upCommand(cfg *command.Config) *cobra.Command {
	u := &up{cfg: cfg, ends: events.NewEnds()}
	c := role(cfg, "up", "Run all services in one process", u.stopBound, u.flags, u.run)
	c.Long = `Run all services in one process: NATS with JetStream on the disk, a host, a
scheduler, a reaper and a gateway. The separate commands run the same code.

Ctrl-C ends it with all its sandboxes. After SIGTERM or a kill they keep running,
and the next start adopts them with all their output.

The first start creates an API key and stores it in the data directory, where the
client commands find it. It also creates the master key, which seals the secrets in
the data directory and must lie outside of it. Back up both: without the master key
the secrets are lost.`
	return c
}

func (u *up) flags(f *pflag.FlagSet) {
	u.common.flags(f, "warn")
	u.streams.flags(f, false)
	u.streams.keys.flags(f)
	gatewayFlags(f, &u.gateway)
	schedulerFlags(f, &u.scheduler)
	u.host.flags(f)
	u.webhooks.flags(f)
	graceFlag(f, &u.grace)
	u.users.flags(f)
	u.outbound.flags(f)
	u.billing.flags(f)
	u.bucket.flags(f)
	u.traces.flags(f)
	f.StringVar(&u.data, "data", "", "data directory (default millrace in the user's state directory)")
	f.StringVar(&u.listenNATS, "nats-listen", "", "address of the NATS server for millrace backup and doctor --cluster (default none)")
	f.StringVar(&u.streams.token, "nats-token", "", "token that they must present, required with --nats-listen; prefer MILLRACE_NATS_TOKEN (default none)")
	f.StringVar(&u.durability, "durability", durabilityProcess, "failure that stored data survives: process (a kill) or power (also a power loss)")
}

// stopBound returns the sum of the bounds of the services, which stop one after another.
func (u *up) stopBound() time.Duration {
	return gatewayBound(u.gateway.DrainTimeout) + hostBound + natsBound
}

// run starts the services from the inside out and stops them from the outside in: NATS
// runs longest, and the gateway drains while everything behind it works.
func (u *up) run(ctx context.Context) error {
	begun := time.Now()
	limitMemory(ctx, u.cfg.Getenv)
	if err := u.prepare(); err != nil {
		return err
	}
	if err := u.streams.keys.prepareFor(u.data, u.cfg.Getenv); err != nil {
		return err
	}
	unlock, err := lock(ctx, u.data)
	if err != nil {
		return err
	}
	defer unlock()
	u.host.tuneHost(func(change hosttune.Change) {
		fmt.Fprintln(u.cfg.Out, "--tune-host:", change)
	})
	if u.gateway.APIKey, err = firstKey(u.data, u.gateway.APIKey); err != nil {
		return err
	}
	always, err := syncAlways(u.durability)
	if err != nil {
		return err
	}
	// Listen before anything starts, so that an address in use is reported at once.
	var listen net.ListenConfig
	if u.gateway.Listener, err = listen.Listen(ctx, "tcp", u.gateway.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer u.gateway.Listener.Close()
	u.ops = ops.New("up", u.cfg.Version, "nats", "hostd", "scheduler", "reaper", "gateway")
	stop, err := u.common.operation.serve(ctx, u.ops, u.log)
	if err != nil {
		return err
	}
	defer stop()
	u.gateway.Public.Domain = cmp.Or(u.gateway.Public.Domain, localDomain(u.gateway.Listener.Addr()))
	srv, err := natsd.StartContext(ctx, natsd.Config{Dir: filepath.Join(u.data, "nats"), Listen: u.listenNATS, Token: u.streams.token, SyncAlways: always, Slog: u.log.With("role", "nats")})
	if err != nil {
		return err
	}
	defer srv.Stop()
	u.ops.MustRegister(serverMetrics{srv})
	u.ops.Ready("nats", func(context.Context) error { return srv.Healthy() })
	front, err := u.connect(ctx, srv, "gateway")
	if err != nil {
		return err
	}
	defer front.Close()
	back, err := u.connect(ctx, srv, "hostd")
	if err != nil {
		return err
	}
	defer back.Close()
	defer u.streams.keys.announce(ctx, front, "gateway")()
	defer u.streams.keys.announce(ctx, back, "hostd")()
	return u.serve(ctx, begun, srv.Failed(), front, back)
}

func (u *up) prepare() (err error) {
	if u.log, err = u.common.logger(u.cfg); err != nil {
		return err
	}
	if err := cmp.Or(u.streams.check(), checkGateway(&u.gateway), checkScheduler(&u.scheduler), u.host.check(), checkGrace(u.grace)); err != nil {
		return err
	}
	if u.listenNATS != "" && u.streams.token == "" {
		return errors.New("--nats-listen: --nats-token is required: any client of the server can read and change all data")
	}
	if u.gateway.EgressAllow, err = prefixes(egressAllow, u.host.allow); err != nil {
		return err
	}
	if u.deliver, err = u.webhooks.config(); err != nil {
		return err
	}
	u.gateway.WebhookAllow = u.deliver.Allow
	if u.spans, err = u.traces.config(u.cfg.Getenv); err != nil {
		return err
	}
	u.gateway.Tracing = samplerOf(u.spans)
	if u.gateway.Users, err = u.users.config(u.cfg.Out); err != nil {
		return err
	}
	if u.gateway.Outbound, err = u.outbound.config(); err != nil {
		return err
	}
	if u.gateway.Billing, err = u.billing.config(); err != nil {
		return err
	}
	if u.gateway.Bucket, err = u.bucket.config(); err != nil {
		return err
	}
	if u.data == "" {
		u.data, err = command.DataDir(u.cfg.Getenv)
	} else {
		u.data, err = filepath.Abs(u.data)
	}
	return err
}

// connect opens a separate connection for the host or the gateway: most bytes are output
// that one writes and the other reads.
func (u *up) connect(ctx context.Context, srv *natsd.Server, role string) (*events.Log, error) {
	cfg := u.streams.config(role, u.ops, u.log.With("role", role))
	cfg.InProcess, cfg.Ends = srv, u.ends
	cfg.Name = checkup.ServicePrefix + "up " + u.cfg.Version
	return events.Open(ctx, cfg)
}

func (u *up) serve(ctx context.Context, begun time.Time, failed <-chan error, front, back *events.Log) error {
	if u.host.destroy == nil {
		u.host.destroy = interrupted(ctx)
	}
	// The services behind the gateway run until it has drained.
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	viewCtx, stopView := context.WithCancel(context.WithoutCancel(ctx))
	defer stopView()
	view, err := front.OpenView(viewCtx)
	if err != nil {
		return err
	}
	u.host.view = view
	last, _ := view.Host(upHost) // the lease of the previous run does not count
	g, behind := errgroup.WithContext(behind)
	g.Go(func() error {
		select {
		case err := <-failed:
			return named("nats", err)
		case <-behind.Done():
			return nil
		}
	})
	g.Go(func() error {
		return named("hostd", u.host.run(behind, u.ops, back, u.log.With("role", "hostd"), upHost, filepath.Join(u.data, "hostd"), u.cfg.Version))
	})
	g.Go(func() error {
		u.scheduler.Log, u.scheduler.View, u.scheduler.Slog, u.scheduler.Ops = front, view, u.log.With("role", "scheduler"), u.ops
		return named("scheduler", scheduler.Run(behind, u.scheduler))
	})
	g.Go(func() error {
		return named("reaper", reaper.Run(behind, reaper.Config{Log: front, Ops: u.ops, View: view, Slog: u.log.With("role", "reaper"), KeyGrace: u.grace, Service: serviceName("reaper"), Webhooks: u.deliver, Traces: u.spans, Outbound: reaper.Outbound(u.gateway.Outbound)}))
	})
	// A service that fails stops the gateway, which drains first.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(behind, cancel)

	address := filepath.Join(u.data, command.AddressFile)
	defer os.Remove(address)
	u.gateway.Log, u.gateway.View, u.gateway.Slog, u.gateway.Version, u.gateway.Ops = front, view, u.log.With("role", "gateway"), u.cfg.Version, u.ops
	hosted := make(chan struct{})
	u.gateway.ReadyAfter = hosted
	u.gateway.Ready = func(addr net.Addr) {
		g.Go(func() error {
			if !awaitHost(ctx, view, last.Rev) {
				return nil
			}
			close(hosted)
			if u.ready != nil {
				return u.ready(localURL(u.gateway.Public.Scheme(), addr))
			}
			return u.announce(begun, address, localURL(u.gateway.Public.Scheme(), addr))
		})
	}
	err = gateway.Run(ctx, u.gateway)
	stop()
	return errors.Join(named("gateway", err), g.Wait())
}

func named(service string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", service, err)
}

// localURL returns the URL of addr for clients on this machine.
func localURL(scheme string, addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// announce writes the address file and prints the banner.
func (u *up) announce(begun time.Time, address, url string) error {
	if err := writeFile(address, url+"\n"); err != nil {
		return fmt.Errorf("store address: %w", err)
	}
	took := time.Since(begun).Round(time.Millisecond)
	h, _ := u.host.view.Host(upHost)
	b := banner{
		version: u.cfg.Version, url: url, key: u.gateway.APIKey, data: u.data, masterKey: u.streams.keys.where(), self: self(u.cfg.Getenv, u.data), took: took,
		drivers: h.Drivers, isolations: h.Isolations, egress: u.host.egress == egressInternet, enforced: h.Enforced,
	}
	b.pending, b.pendingErr = hostd.LateDriver(u.host.drivers)
	_, err := fmt.Fprint(u.cfg.Out, b.text())
	return err
}

// awaitHost waits until up's host has a lease later than rev and accepts sandboxes.
func awaitHost(ctx context.Context, view *catalog.View, rev uint64) bool {
	changed, stop := view.Changes()
	defer stop()
	for {
		if h, ok := view.Host(upHost); ok && h.Rev > rev && ready(&h) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func ready(h *fleet.Host) bool { return h.Alive(time.Now()) && !h.Draining && h.Capacity > 0 }

// self returns the shell command that runs this program with this data directory.
func self(getenv func(string) string, data string) string {
	cmd := "millrace"
	if exe, err := os.Executable(); err == nil {
		switch {
		case strings.Contains(exe, "go-build"):
			cmd = "go run ."
		case !inPath(exe, getenv("PATH")):
			cmd = quote(exe)
		}
	}
	if def, err := command.DataDir(getenv); err != nil || def != data {
		cmd = "MILLRACE_DATA=" + quote(data) + " " + cmd
	}
	return cmd
}

// inPath reports whether the command `millrace` runs exe.
func inPath(exe, path string) bool {
	me, err := os.Stat(exe)
	if err != nil {
		return false
	}
	for _, dir := range filepath.SplitList(path) {
		if found, err := os.Stat(filepath.Join(dir, "millrace")); err == nil {
			return os.SameFile(me, found)
		}
	}
	return false
}

// quote returns s as one shell word.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
