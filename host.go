package main

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
	"github.com/millrace/millrace/internal/cli"
	"github.com/millrace/millrace/internal/hosttune"
	"github.com/millrace/millrace/services/hostd"
)

// inside plays the roles that a host starts this program in, inside a sandbox.
func inside(args []string) bool {
	code, ok := hostd.Inside(args, os.Stdout, os.Stderr)
	if ok && code != 0 {
		os.Exit(code)
	}
	return ok
}

// host are the settings of a host.
type host struct {
	capacity int
	warm     int
	drivers  []string
	output   output
	shim     string
	egress   string
	allow    []string
	dns      string
	network  string
	veths    string
	tune     bool
	cache    int64
	ahead    int64
	destroy  func() bool  // see hostd.Config.DestroyOnExit
	view     *events.View // see hostd.Config.View

	kernel    string
	tcg       bool
	jailPool  string
	jailTools map[string]string
}

func (h *host) flags(f *pflag.FlagSet) {
	f.IntVar(&h.capacity, "capacity", 0, fmt.Sprintf("maximum number of sandboxes; 0: what this machine allows (%d): one for each %d MiB of memory, %d for each CPU, and one for each %d processes that it may have", hostd.DefaultCapacity(), hostd.MemoryPerSandbox>>20, hostd.SandboxesPerCPU, hostd.ProcessesPerSandbox))
	f.IntVar(&h.warm, "warm", 2, "places kept ready of each kind that was asked for lately, by drivers that take long to make one (gvisor); 0: none")
	f.StringSliceVar(&h.drivers, "driver", nil, "drivers to offer, the first is the default: auto (gvisor as soon as it is built and tried, namespace until then and for who asks for it), names, or both (namespace,auto); direct (no isolation) is for development")
	f.StringVar(&h.kernel, "guest-kernel", "", "directory with boot/ and lib/modules/ of the kernel for the drivers microvm and firecracker; default: /var/lib/millrace/microvm, else /")
	f.BoolVar(&h.tcg, "tcg", false, "let the driver microvm translate where KVM does not work: 20 to 50 times slower")
	f.StringVar(&h.jailPool, "jail-pool", "millrace", "ZFS data set of the driver jail: templates are in tpl of it, sandboxes in run")
	f.StringToStringVar(&h.jailTools, "jail-tool", nil, "NAME=PATH of a program that the driver jail is to run: jexec, jail, jls, zfs, rctl, umount, sysctl")
	f.StringVar(&h.egress, "egress", egressNone, "how sandboxes may use the network: none, or internet: as each was asked for, never an address that is not public")
	f.StringSliceVar(&h.allow, egressAllow, nil, "prefixes that are not public and may be used all the same, as 10.1.0.0/16; link-local and metadata addresses one by one")
	f.StringVar(&h.dns, "egress-dns", "", "IP:PORT of the name server that resolves what sandboxes reach by name; default: the machine's")
	f.StringVar(&h.network, "network", networkProxy, "what sandboxes with --egress internet get: proxy, or veth: an interface, too, for those whose own rules name nothing (root, nft, and --driver namespace,auto: gvisor has none)")
	f.StringVar(&h.veths, "veth-range", "", "IPv4 addresses of sandboxes' interfaces, four each; default: 10.213.0.0/16")
	f.BoolVar(&h.tune, "tune-host", false, "raise this machine's kernel limits and the priority of this process, as deploy/ does (root); default: change nothing")
	h.output.flags(f)
	f.Int64Var(&h.cache, "template-cache", 0, "bytes of templates and of copies of snapshots that are kept although no sandbox uses them; 0: 32 GiB")
	f.Int64Var(&h.ahead, "copy-ahead", 0, "bytes of a snapshot that is copied to the servers' store before another host asks; 0: 4 GiB; negative: none is")
	f.StringVar(&h.shim, "shim", "", "program that is each sandbox's first process, or `self`; default: millrace-shim beside this program, else built from source where that is")
}

// egressAllow is the flag that names what is not public and may be reached.
const egressAllow = "egress-allow"

// webhookAllow is the flag that names what is not public and may receive events.
const webhookAllow = "webhook-allow"

// prefixes reads what a flag was given.
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

// What sandboxes may reach.
const (
	egressNone     = "none"
	egressInternet = "internet"

	networkProxy = "proxy"
)

// interfaces reads what sandboxes get besides the proxy.
func (h *host) interfaces() (network string, addrs netip.Prefix, err error) {
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
	return "", addrs, fmt.Errorf("--network: %q is neither %s nor %s", h.network, networkProxy, hostd.NetworkVeth)
}

// reach reads what sandboxes may reach.
func (h *host) reach() (bool, []netip.Prefix, error) {
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
	return false, nil, fmt.Errorf("--egress: %q is neither %s nor %s", h.egress, egressNone, egressInternet)
}

// output are the limits of what sandboxes print, in bytes.
type output struct {
	quota, sandboxQuota, rate, sandboxRate uint64
	spool                                  int64
}

func (o *output) flags(f *pflag.FlagSet) {
	f.Uint64Var(&o.quota, "quota", 0, "bytes of output that one process may record; 0: no limit")
	f.Uint64Var(&o.sandboxQuota, "sandbox-quota", 0, "bytes of output that all processes of a sandbox may record; 0: no limit")
	f.Uint64Var(&o.rate, "rate", 0, "bytes of output a second that are read of one process, the rest waits; 0: no limit")
	f.Uint64Var(&o.sandboxRate, "sandbox-rate", 0, "bytes of output a second that are read of a sandbox, the rest waits; 0: no limit")
	f.Int64Var(&o.spool, "spool", 1<<30, "bytes on the disk, a sandbox, for output that cannot be stored yet; negative: it waits in memory")
}

// run runs a host until ctx ends.
func (h *host) run(ctx context.Context, log *events.Log, logger *slog.Logger, name, dir, version string) error {
	egress, allow, err := h.reach()
	if err != nil {
		return err
	}
	network, addrs, err := h.interfaces()
	if err != nil {
		return err
	}
	var shim []string
	if h.shim != "" {
		shim = []string{h.shim}
	}
	return hostd.Serve(ctx, hostd.Config{
		Shim: shim, TemplateCache: h.cache, CopyAhead: h.ahead,
		Log: log, View: h.view, Name: name, DataDir: dir, Drivers: h.drivers, Capacity: h.capacity, Warm: h.warm, DestroyOnExit: h.destroy, Version: version, Slog: logger,
		Quota: h.output.quota, SandboxQuota: h.output.sandboxQuota, Rate: h.output.rate, SandboxRate: h.output.sandboxRate, Spool: h.output.spool,
		Egress: egress, EgressAllow: allow, EgressDNS: h.dns, Network: network, VethRange: addrs, GuestKernel: h.kernel, TCG: h.tcg, JailPool: h.jailPool, JailTools: h.jailTools,
	})
}

func hostdCommand(cfg *cli.Config) *cobra.Command {
	var c common
	var s streams
	var h host
	var name, dir string
	return role(cfg, "hostd", "Run sandboxes on this machine", always(hostBound), func(f *pflag.FlagSet) {
		c.flags(f, "info")
		s.flags(f, true)
		h.flags(f)
		f.StringVar(&name, "name", "", "of the host, unique among all; default: this machine's name")
		f.StringVar(&dir, "data", "", "directory of its journal and sandboxes; required")
	}, connected(cfg, &c, &s, "hostd", func() error {
		if dir == "" {
			return errors.New("--data is required")
		}
		return h.check()
	}, func(ctx context.Context, log *events.Log, logger *slog.Logger) error {
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
		return h.run(ctx, log, logger, name, dir, cfg.Version)
	}))
}

// tuneHost changes the machine if the operator asked for it, and reports each change.
func (h *host) tuneHost(report func(hosttune.Change)) {
	if !h.tune {
		return
	}
	for _, change := range hosttune.Apply("/") {
		report(change)
	}
}

// probe tells what each driver can do on this machine.
func probe(ctx context.Context) []cli.DriverReport {
	var out []cli.DriverReport
	for _, r := range hostd.Probe(ctx) {
		d := cli.DriverReport{Name: r.Name, OK: r.Err == nil}
		if r.Err != nil {
			d.Detail = r.Err.Error()
		} else {
			about := []string{"isolation: " + r.Isolation}
			if r.Default {
				about[0] += ", the default here; who wants another demands it (isolation), or --driver"
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
