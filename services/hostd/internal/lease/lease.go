package lease

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/machine"
)

// Config describes the host to its lease. All fields but Instance and Version are required.
type Config struct {
	Host     string // name of the host
	Instance string // id of the run
	Version  string
	TTL      time.Duration
	Capacity int    // maximum number of sandboxes
	DataDir  string // directory on the disk that is reported
	System   string // identifies the host's own files
	CPU      string // the CPU's features

	Log       *events.Log
	Journal   *journal.Journal
	Drivers   *drivers.Registry
	Counts    func() (sandboxes, processes uint32) // returns the current numbers
	Templates func() []string                      // returns the templates from which a sandbox can be created without a fetch
	Slog      *slog.Logger
}

// Holder takes the leases of a host.
type Holder struct {
	cfg       Config
	stale     chan struct{} // has a value when the lease is out of date
	draining  atomic.Bool   // the host accepts no new sandbox
	recovered atomic.Bool   // the remains of the previous run are processed; the host accepts no sandbox before

	checkpoint atomic.Pointer[fleet.Checkpoint] // up to which the log has the ends; nil: that of the previous run
}

// New returns a holder without a lease.
func New(cfg Config) *Holder { return &Holder{cfg: cfg, stale: make(chan struct{}, 1)} }

// Renew has the lease renewed at once.
func (ls *Holder) Renew() { waiting.Notify(ls.stale) }

// SetDraining sets whether the host accepts no new sandbox.
func (ls *Holder) SetDraining(drain bool) { ls.draining.Store(drain) }

// SetRecovered records that the remains of the previous run are processed.
func (ls *Holder) SetRecovered() { ls.recovered.Store(true) }

// SetCheckpoint sets the checkpoint up to which the log has the ends of the host's processes. The next
// renewal of the lease stores it.
func (ls *Holder) SetCheckpoint(c fleet.Checkpoint) { ls.checkpoint.Store(&c) }

// Lease is a host's claim to be alive. It belongs to one goroutine.
type Lease struct {
	ls  *Holder
	rev uint64
	New bool // the log had no lease of the host

	Previous fleet.Checkpoint // that of the previous run
	fleet.Lease
}

// Take takes the lease with the next epoch, whichever run had it before.
func (ls *Holder) Take(ctx context.Context) (*Lease, error) {
	l := &Lease{ls: ls}
	newest, err := ls.cfg.Journal.Epoch()
	if err != nil {
		return nil, err
	}
	for {
		before, rev, known, err := ls.cfg.Log.Lease(ctx, ls.cfg.Host)
		if err != nil {
			return nil, err
		}
		l.New, l.Previous = !known, before.Checkpoint
		l.Lease = fleet.Lease{
			Host: ls.cfg.Host, Epoch: max(before.Epoch, newest) + 1, TTL: ls.cfg.TTL, Instance: ls.cfg.Instance,
			Capacity: uint32(ls.cfg.Capacity), Version: ls.cfg.Version,
			Machine: fleet.Machine{CPUs: machine.CPUs()}, Checkpoint: before.Checkpoint,
		}
		l.observe()
		l.rev, err = ls.cfg.Log.PutLease(ctx, l.Lease, rev)
		switch {
		case err == nil:
			return l, ls.cfg.Journal.SetEpoch(l.Epoch)
		case !kind.Is(err, kind.Conflict):
			return l, err
		}
	}
}

// Keep renews the lease until ctx ends. An error of kind.Fenced says that the host has a newer
// run, or was declared gone.
func (l *Lease) Keep(ctx context.Context) error {
	t := time.NewTicker(l.TTL / 4)
	defer t.Stop()
	for {
		l.observe()
		if err := l.put(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-l.ls.stale:
		}
	}
}

func (l *Lease) put(ctx context.Context) error {
	rev, err := l.ls.cfg.Log.RenewLease(ctx, l.Lease, l.rev)
	switch {
	case err == nil:
		l.rev = rev
		return nil
	case ctx.Err() != nil:
		return nil //nolint:nilerr // ctx ended
	}
	return err
}

// Leave publishes at once that the run ends, instead of when the lease does. With sandboxes left
// running it is a pause: the lease remains until its end, and while it does the next run is
// expected.
func (l *Lease) Leave(ctx context.Context) {
	l.observe()
	l.Gone = l.Sandboxes == 0
	l.Starting = !l.Gone && !l.ls.draining.Load()
	l.Draining = true
	if err := l.put(ctx); err != nil {
		l.ls.cfg.Slog.Warn("release lease failed", "err", err)
	}
}

// observe updates the lease with the host's current load.
func (l *Lease) observe() {
	began := l.ls.recovered.Load() // read before the drivers: else the lease might show a host without any
	l.Sandboxes, l.Processes = l.ls.cfg.Counts()
	l.Drivers, l.Isolations, l.Fits, l.FileFits, l.VolumeDrivers, l.Enforced = nil, nil, nil, nil, nil, nil
	for _, d := range l.ls.cfg.Drivers.Offers() {
		l.Drivers = append(l.Drivers, d.Name())
		l.Isolations = append(l.Isolations, d.Caps.Isolation)
		l.Fits = append(l.Fits, d.Caps.Fits)
		l.FileFits = append(l.FileFits, d.Caps.FileFits)
		l.Enforced = append(l.Enforced, LimitNames(d.Caps.Enforced()))
		if d.Caps.Volumes {
			l.VolumeDrivers = append(l.VolumeDrivers, d.Name())
		}
	}
	l.System, l.CPU = l.ls.cfg.System, l.ls.cfg.CPU
	l.Load1 = machine.Load()
	l.MemoryTotal, l.MemoryFree = machine.Memory()
	l.DiskTotal = disk.SpaceOf(l.ls.cfg.DataDir).Total
	l.Templates = l.ls.cfg.Templates()
	if c := l.ls.checkpoint.Load(); c != nil {
		l.Checkpoint = *c
	}
	drains := l.ls.draining.Load()
	l.Starting = !drains && !began
	l.Draining = drains || l.Starting
}

// LimitNames returns limits as a lease has them.
func LimitNames(limits []sandbox.Limit) string {
	var names []string
	for _, l := range limits {
		names = append(names, string(l))
	}
	return strings.Join(names, " ")
}
