package hostd

import (
	"crypto/rand"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Config says how to run a host. The zero value of a field is its default.
type Config struct {
	Log      *events.Log   // required
	Name     string        // of the host, unique among all; required
	View     *events.View  // of a Log to the same servers, folded at least until Run returns; default: one of its own
	DataDir  string        // of the journal and the sandboxes, made if missing, for one hostd at a time; required
	Drivers  []string      // to offer, the first is the default; default: Auto. direct must be named
	Shim     []string      // program and arguments of the shim, or ShimSelf; default: millrace-shim beside this program or built from its source, until then this program
	Version  string        // told to others
	Slog     *slog.Logger  // default: silence
	LeaseTTL time.Duration // default fleet.DefaultTTL

	// SampleEvery is how often what a sandbox uses is put on record; default 5 s.
	// events.MaxSamples of a sandbox are kept.
	SampleEvery time.Duration

	TemplateCache int64         // bytes of templates and copies of snapshots that are kept though no sandbox uses them; default 32 GiB
	CopyAhead     int64         // bytes of a snapshot that is copied to the servers' store before somebody asks; default 4 GiB; negative: none is
	Capacity      int           // maximum number of sandboxes; default DefaultCapacity
	DestroyOnExit func() bool   // asked at a clean end: destroy the sandboxes? Otherwise, and by default, they wait for the next life
	Grace         time.Duration // see wire.Limits; default 2 s

	// Of output, in bytes; 0: no limit. What is over a quota is dropped, and the
	// record says so; what is over a rate waits in its process.
	Quota        uint64 // that a process may record
	SandboxQuota uint64 // that all processes of a sandbox may record
	Rate         uint64 // a second, of a process
	SandboxRate  uint64 // a second, of all processes of a sandbox

	// Spool is how many bytes of the disk the output of a sandbox may take that
	// cannot be stored because hostd or NATS is away; then its processes wait.
	// Negative: it is kept in memory, a few MiB a process. Default 1 GiB.
	Spool int64

	// Warm is how many places are kept ready of each kind that was asked for lately,
	// by drivers that take long to make one. Default: none.
	Warm int

	// GuestKernel is the directory of the kernel that the drivers microvm and
	// firecracker boot (see their Config). TCG allows microvm to translate where KVM
	// does not work.
	GuestKernel string
	TCG         bool

	// JailPool is the ZFS data set of the driver jail, JailTools the programs that it
	// runs, by name, instead of those where FreeBSD has them. Default: "millrace".
	JailPool  string
	JailTools map[string]string

	// Egress lets sandboxes use the network as far as their records say, through
	// the host's proxy (package egress). Addresses that are not public are refused,
	// but for EgressAllow.
	Egress      bool
	EgressAllow []netip.Prefix
	// Network is what sandboxes get besides the proxy: NetworkVeth, where root and
	// the driver let that be, gives those whose records name no lists, rules or proxy
	// an interface of their own (package veth). Default: nothing. VethRange are its
	// addresses; default 10.213.0.0/16.
	Network   string
	VethRange netip.Prefix

	EgressDNS string // IP:PORT of the name server for them; default: the machine's

	// Fault is called at named points (Points). An error from it ends hostd on
	// the spot, as a kill would: that is what it is for, in tests.
	Fault func(point string) error

	instance   string          // of the run, in its lease; default: random
	made       *makes          // nil: makeDriver makes another one each time
	drivers    []driver.Driver // instead of Drivers, in tests
	meterEvery time.Duration   // other than defaultMeterEvery, in tests
}

// Points are the names that Config.Fault is called with, in the order in which a
// sandbox and a process with some output meet them.
var Points = [...]string{
	"placed", "journaled", "created", "running",
	"claimed", "spawned", "summarized", "stored", "acked", "replied", "noted",
	"stopping", "drained", "destroyed", "buried",
}

const (
	// NetworkVeth is the value of Config.Network.
	NetworkVeth = "veth"
)

// setDefaults makes cfg that of a life.
func setDefaults(cfg *Config) error {
	switch {
	case cfg.Log == nil || cfg.DataDir == "":
		return kind.New(kind.Invalid, "hostd", "", "a log and a data directory are needed")
	case cfg.Slog == nil:
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	if _, err := fleet.ParseName(cfg.Name); err != nil {
		return err
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = fleet.DefaultTTL
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = DefaultCapacity()
	}
	if cfg.SampleEvery == 0 {
		cfg.SampleEvery = defaultSampleEvery
	}
	if cfg.meterEvery == 0 {
		cfg.meterEvery = defaultMeterEvery
	}
	if cfg.CopyAhead == 0 {
		cfg.CopyAhead = defaultCopyAhead
	}
	if cfg.Spool == 0 {
		cfg.Spool = defaultSpool
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	cfg.DataDir = dir
	if cfg.instance == "" {
		cfg.instance = rand.Text()
	}
	cfg.made = &makes{all: make(map[string]driver.Driver)}
	return nil
}

// scratch is where drivers make trials of themselves; empty: there is no data
// directory.
func (c *Config) scratch() string {
	if c.DataDir == "" {
		return ""
	}
	return filepath.Join(c.DataDir, "trials")
}

func cpus() uint32 { return uint32(runtime.NumCPU()) }
