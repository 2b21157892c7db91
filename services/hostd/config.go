package hostd

import (
	"cmp"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/hostmetrics"
	"github.com/millrace/millrace/services/hostd/internal/machine"
)

// Config configures a host. The zero value of a field is its default.
type Config struct {
	Log      *events.Log   // required
	Name     string        // name of the host, unique in the fleet; required
	View     *catalog.View // view of a Log to the same servers, kept current at least until Run returns; default: Run opens one
	DataDir  string        // directory of the journal and the sandboxes, created if missing, for one hostd at a time; required
	Drivers  []string      // drivers to offer, the first is the default; default: Auto. direct must be named
	Shim     []string      // program and arguments of the shim, or ShimSelf; default: millrace-shim beside this program or built from its source, until then this program
	Version  string        // version in the lease
	Slog     *slog.Logger  // default: discard
	Ops      *ops.Role     // receives the host's metrics, and whether it is ready; default: its own
	LeaseTTL time.Duration // default fleet.DefaultTTL

	// SampleEvery is the interval in which the usage of a sandbox is recorded; default 5 s. The
	// last catalog.MaxSamples per sandbox are kept.
	SampleEvery time.Duration

	TemplateCache int64         // maximum bytes of cached templates and copies of snapshots that no sandbox uses; default 32 GiB
	CopyAhead     int64         // maximum bytes of a snapshot that is copied to the servers' object store in advance; default 4 GiB; negative: no copies in advance
	Capacity      int           // maximum number of sandboxes; default DefaultCapacity
	DestroyOnExit func() bool   // called on a clean exit: destroy the sandboxes? Otherwise, and by default, they are left to the next run
	Grace         time.Duration // see wire.Limits; default 2 s

	// Limits of output, in bytes; 0: no limit. Output beyond a quota is dropped, which the
	// record shows; a process beyond a rate is throttled.
	Quota        uint64 // per process
	SandboxQuota uint64 // per sandbox
	Rate         uint64 // per second and process
	SandboxRate  uint64 // per second and sandbox

	// Spool is the maximum of a sandbox's output, in bytes, that is kept on disk while hostd or
	// NATS is unavailable; then its processes are throttled. Negative: it is kept in memory, a
	// few MiB per process. Default 1 GiB.
	Spool int64

	// Warm is the maximum number of warm instances, for drivers that take long to create one.
	// They also use at most a sixteenth of the machine's memory. Default: none.
	Warm int

	// GuestKernel is the directory of the kernel that the drivers microvm and
	// firecracker boot (see their Config). TCG allows microvm to translate where KVM
	// does not work.
	GuestKernel string
	TCG         bool

	// JailPool is the ZFS data set of the driver jail; default "millrace". JailTools overrides
	// the paths of the programs that it runs, by name.
	JailPool  string
	JailTools map[string]string

	// Egress lets sandboxes use the network as far as their records allow, through the host's
	// proxy (package egress). Addresses that are not public are refused, except for EgressAllow.
	Egress      bool
	EgressAllow []netip.Prefix
	// Network is the network besides the proxy: with NetworkVeth, as root and with a driver that
	// supports it, sandboxes whose records have no lists, rules or proxy get a network interface
	// of their own (package veth). Default: none. VethRange is the range of their addresses;
	// default 10.213.0.0/16.
	Network   string
	VethRange netip.Prefix

	EgressDNS string // IP:PORT of the sandboxes' name server; default: the machine's

	// Fault is called at named points (Points), for tests. An error from it ends hostd at once,
	// as a kill would.
	Fault func(point string) error

	metrics    *hostmetrics.Metrics // of all runs; set by Serve
	instance   string               // id of the run, in its lease; default: random
	drivers    []driver.Driver      // instead of Drivers, in tests
	meterEvery time.Duration        // other than network.DefaultMeterEvery, in tests
}

// Points are the names that Config.Fault is called with, in the order in which a sandbox and a
// process with some output reach them.
var Points = [...]string{
	"placed", "journaled", "created", "running",
	"claimed", "spawned", "summarizing", "appending", "summarized", "stored", "acked", "replied", "cursorStored",
	"stopping", "drained", "destroyed", "tornDown",
}

const (
	// NetworkVeth is the value of Config.Network.
	NetworkVeth = "veth"
)

// defaultSampleEvery is the default of Config.SampleEvery.
const defaultSampleEvery = 5 * time.Second

// defaultCopyAhead is the default of Config.CopyAhead.
const defaultCopyAhead = 4 << 30

// setDefaults validates cfg and fills in the defaults.
func setDefaults(cfg *Config) error {
	if cfg.Log == nil || cfg.DataDir == "" {
		return kind.New(kind.Invalid, "hostd", "", "a log and a data directory are needed")
	}
	if _, err := fleet.ParseName(cfg.Name); err != nil {
		return err
	}
	if cfg.metrics == nil {
		cfg.metrics = newMetrics(cfg)
	}
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	cfg.LeaseTTL = cmp.Or(cfg.LeaseTTL, fleet.DefaultTTL)
	cfg.Capacity = cmp.Or(cfg.Capacity, DefaultCapacity())
	cfg.SampleEvery = cmp.Or(cfg.SampleEvery, defaultSampleEvery)
	cfg.CopyAhead = cmp.Or(cfg.CopyAhead, defaultCopyAhead)
	cfg.Spool = cmp.Or(cfg.Spool, defaultSpool)
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	cfg.DataDir = dir
	cfg.instance = cmp.Or(cfg.instance, rand.Text())
	return nil
}

// newMetrics registers the metrics of a host, and sets the default of Config.Ops.
func newMetrics(cfg *Config) *hostmetrics.Metrics {
	if cfg.Ops == nil {
		cfg.Ops = ops.New("hostd", cfg.Version)
	}
	return hostmetrics.New(cfg.Ops)
}

// scratch returns the directory in which drivers probe; empty without a data directory.
func (c *Config) scratch() string {
	if c.DataDir == "" {
		return ""
	}
	return filepath.Join(c.DataDir, "trials")
}

// Expected resources per sandbox, which determine DefaultCapacity.
const (
	MemoryPerSandbox    = machine.MemoryPerSandbox // bytes
	SandboxesPerCPU     = machine.SandboxesPerCPU
	ProcessesPerSandbox = machine.ProcessesPerSandbox
)

// DefaultCapacity returns the default of Config.Capacity on this machine.
func DefaultCapacity() int { return machine.DefaultCapacity() }
