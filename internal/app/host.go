package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/hosttune"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/hostd"
)

// RunHelper runs this program as a helper in a sandbox if args ask for that, as hosts do.
func RunHelper(args []string) bool {
	code, ok := hostd.RunHiddenRole(args, os.Stdout, os.Stderr)
	if ok && code != 0 {
		os.Exit(code)
	}
	return ok
}

// host holds the settings of a host.
type host struct {
	capacity  int
	warm      int
	drivers   []string
	output    outputLimits
	shim      string
	egress    string
	allow     []string
	dns       string
	network   string
	veths     string
	tune      bool
	cache     int64
	copyAhead int64
	destroy   func() bool   // see hostd.Config.DestroyOnExit
	view      *catalog.View // see hostd.Config.View

	kernel    string
	tcg       bool
	jailPool  string
	jailTools map[string]string
}

func (h *host) flags(f *pflag.FlagSet) {
	f.IntVar(&h.capacity, "capacity", 0, fmt.Sprintf("maximum number of sandboxes (default %d on this machine: the smallest of one per %d MiB of memory, %d per CPU and one per %d processes of its limit)", hostd.DefaultCapacity(), hostd.MemoryPerSandbox>>20, hostd.SandboxesPerCPU, hostd.ProcessesPerSandbox))
	f.IntVar(&h.warm, "warm", 64, "maximum number of instances created in advance, of recently used configurations, for gvisor and for namespace as root; 0 disables the warm pool")
	f.StringSliceVar(&h.drivers, "driver", nil, "drivers by name, or auto, separated by commas; the first is the default driver. auto is gvisor (once it is built and tested), namespace and jail, where they work; direct (no isolation) is for development (default auto)")
	f.StringVar(&h.kernel, "guest-kernel", "", "directory with boot/ and lib/modules/ of the guest kernel for the drivers microvm and firecracker (default /var/lib/millrace/microvm, else /)")
	f.BoolVar(&h.tcg, "tcg", false, "let the driver microvm emulate the CPU without KVM, 20 to 50 times slower")
	f.StringVar(&h.jailPool, "jail-pool", "millrace", "ZFS dataset of the driver jail, with templates in tpl and sandboxes in run")
	f.StringToStringVar(&h.jailTools, "jail-tool", nil, "path of a program for the driver jail, as NAME=PATH; names: jexec, jail, jls, zfs, rctl, umount, sysctl; others are found in PATH")
	f.StringVar(&h.egress, "egress", egressNone, "network access of sandboxes: none, or internet (public addresses, within each sandbox's own rules)")
	f.StringSliceVar(&h.allow, egressAllow, nil, "non-public prefixes that sandboxes may reach, such as 10.1.0.0/16; link-local and metadata addresses must be listed one by one (default none)")
	f.StringVar(&h.dns, "egress-dns", "", "name server for sandboxes, as IP:PORT (default this machine's)")
	f.StringVar(&h.network, "network", networkProxy, "network of sandboxes with --egress internet: proxy, or veth to add an interface for sandboxes without rules of their own (requires root, nft and --driver namespace,auto; gvisor has no interface)")
	f.StringVar(&h.veths, "veth-range", "", "IPv4 prefix for the interfaces of sandboxes, four addresses each (default 10.213.0.0/16)")
	f.BoolVar(&h.tune, "tune-host", false, "raise this machine's kernel limits and the priority of this process, as deploy/ does; requires root")
	h.output.flags(f)
	f.Int64Var(&h.cache, "template-cache", 0, "maximum size of unused templates and snapshot copies on this host, in bytes (default 32 GiB)")
	f.Int64Var(&h.copyAhead, "copy-ahead", 0, "maximum size in bytes of a snapshot that is copied to the servers' store in advance; negative disables it (default 4 GiB)")
	f.StringVar(&h.shim, "shim", "", "program to run as the first process of each sandbox, or self for this program (default millrace-shim beside this program, else built from source)")
}

// egressAllow is the flag that lists non-public prefixes that sandboxes may reach.
const egressAllow = "egress-allow"

// webhookAllow is the flag that lists non-public prefixes that may receive events.
const webhookAllow = "webhook-allow"

// prefixes parses a flag's list of prefixes or addresses.
func prefixes(flag string, list []string) (all []netip.Prefix, err error) {
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, fmt.Errorf("--%s: %w", flag, err)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		all = append(all, p)
	}
	return all, nil
}

// Values of --egress and --network.
const (
	egressNone     = "none"
	egressInternet = "internet"

	networkProxy = "proxy"
)

// networkSettings parses --network and --veth-range.
func (h *host) networkSettings() (network string, addrs netip.Prefix, err error) {
	if h.veths != "" {
		if addrs, err = netip.ParsePrefix(h.veths); err != nil {
			return "", addrs, fmt.Errorf("--veth-range: %w", err)
		}
	}
	switch h.network {
	case networkProxy, "":
		return "", addrs, nil
	case hostd.NetworkVeth:
		return hostd.NetworkVeth, addrs, nil
	}
	return "", addrs, fmt.Errorf("--network: %q must be %s or %s", h.network, networkProxy, hostd.NetworkVeth)
}

// egressSettings parses --egress and --egress-allow.
func (h *host) egressSettings() (bool, []netip.Prefix, error) {
	allow, err := prefixes(egressAllow, h.allow)
	if err != nil {
		return false, nil, err
	}
	switch h.egress {
	case egressNone, "":
		return false, nil, nil
	case egressInternet:
		return true, allow, nil
	}
	return false, nil, fmt.Errorf("--egress: %q must be %s or %s", h.egress, egressNone, egressInternet)
}

// outputLimits holds the limits of sandboxes' output, in bytes.
type outputLimits struct {
	quota, sandboxQuota, rate, sandboxRate uint64
	spool                                  int64
}

func (o *outputLimits) flags(f *pflag.FlagSet) {
	f.Uint64Var(&o.quota, "quota", 0, "maximum recorded output of a process, in bytes (default no limit)")
	f.Uint64Var(&o.sandboxQuota, "sandbox-quota", 0, "maximum recorded output of all processes of a sandbox, in bytes (default no limit)")
	f.Uint64Var(&o.rate, "rate", 0, "maximum output rate of a process, in bytes per second; beyond it the process blocks (default no limit)")
	f.Uint64Var(&o.sandboxRate, "sandbox-rate", 0, "maximum output rate of a sandbox, in bytes per second; beyond it its processes block (default no limit)")
	f.Int64Var(&o.spool, "spool", 1<<30, "maximum size of a sandbox's spool file for output that is not stored yet, in bytes; negative keeps it in memory")
}

// run serves as a host until ctx ends.
func (h *host) run(ctx context.Context, role *ops.Role, log *events.Log, logger *slog.Logger, name, dir, version string) error {
	egress, allow, err := h.egressSettings()
	if err != nil {
		return err
	}
	network, addrs, err := h.networkSettings()
	if err != nil {
		return err
	}
	var shim []string
	if h.shim != "" {
		shim = []string{h.shim}
	}
	return hostd.Serve(ctx, hostd.Config{
		Shim: shim, TemplateCache: h.cache, CopyAhead: h.copyAhead,
		Ops: role, Log: log, View: h.view, Name: name, DataDir: dir, Drivers: h.drivers, Capacity: h.capacity, Warm: h.warm, DestroyOnExit: h.destroy, Version: version, Slog: logger,
		Quota: h.output.quota, SandboxQuota: h.output.sandboxQuota, Rate: h.output.rate, SandboxRate: h.output.sandboxRate, Spool: h.output.spool,
		Egress: egress, EgressAllow: allow, EgressDNS: h.dns, Network: network, VethRange: addrs, GuestKernel: h.kernel, TCG: h.tcg, JailPool: h.jailPool, JailTools: h.jailTools,
	})
}

func hostdCommand(cfg *command.Config) *cobra.Command {
	var c common
	var s streams
	var h host
	var name, dir string
	return role(cfg, "hostd", "Run sandboxes on this machine", constantBound(hostBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		s.keys.flags(f)
		h.flags(f)
		f.StringVar(&name, "name", "", "unique name of the host (default this machine's name)")
		f.StringVar(&dir, "data", "", "directory of the journal and sandboxes (required)")
	}, connected(cfg, &c, &s, "hostd", func() error {
		if dir == "" {
			return errors.New("--data is required")
		}
		return h.check()
	}, func(ctx context.Context, role *ops.Role, log *events.Log, logger *slog.Logger) error {
		if name == "" {
			name = hostName()
		}
		unlock, err := lock(ctx, dir)
		if err != nil {
			return err
		}
		defer unlock()
		h.tuneHost(func(change hosttune.Change) { logger.Info("host setting changed", "setting", change.String()) })
		h.destroy = interrupted(ctx)
		return h.run(ctx, role, log, logger, name, dir, cfg.Version)
	}))
}

// tuneHost applies the host settings if --tune-host is set, and reports each change.
func (h *host) tuneHost(report func(hosttune.Change)) {
	if !h.tune {
		return
	}
	for _, change := range hosttune.Apply("/") {
		report(change)
	}
}

// probe tests each driver on this machine.
func probe(ctx context.Context) []command.DriverReport {
	var out []command.DriverReport
	for _, r := range hostd.Probe(ctx) {
		d := command.DriverReport{Name: r.Name, OK: r.Err == nil}
		if r.Err != nil {
			d.Detail = r.Err.Error()
		} else {
			about := []string{"isolation: " + r.Isolation}
			if r.Default {
				about[0] += ", the default here; choose another by isolation or --driver"
			}
			if len(r.Can) > 0 {
				about = append(about, "can "+strings.Join(r.Can, ", "))
			}
			if len(r.Cannot) > 0 {
				about = append(about, "cannot "+strings.Join(r.Cannot, ", "))
			}
			d.Detail = strings.Join(append(about, r.Notes...), "; ")
		}
		out = append(out, d)
	}
	return out
}
