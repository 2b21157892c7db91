package hostd

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/machine"
)

// lease is the host's claim to be alive. It belongs to one goroutine.
type lease struct {
	h   *host
	rev uint64
	new bool // the log had no lease of the host
	fleet.Lease
}

// leaseState is what the host's lease says besides its load.
type leaseState struct {
	h *host

	stale     chan struct{} // has a value when the lease is out of date
	draining  atomic.Bool   // it accepts no new sandbox
	recovered atomic.Bool   // the remains of the previous run are processed; it accepts no sandbox before
	system    string        // identifies the host's own files
	cpu       string        // the CPU's features
}

// take takes the lease with the next epoch, whichever run had it before.
func (ls *leaseState) take(ctx context.Context) (*lease, error) {
	l := &lease{h: ls.h}
	newest, err := ls.h.journal.Epoch()
	if err != nil {
		return nil, err
	}
	for {
		before, rev, known, err := ls.h.log.Lease(ctx, ls.h.cfg.Name)
		if err != nil {
			return nil, err
		}
		l.new = !known
		l.Lease = fleet.Lease{
			Host: ls.h.cfg.Name, Epoch: max(before.Epoch, newest) + 1, TTL: ls.h.cfg.LeaseTTL, Instance: ls.h.cfg.instance,
			Capacity: uint32(ls.h.cfg.Capacity), Version: ls.h.cfg.Version, CPUs: machine.CPUs(),
		}
		l.observe()
		l.rev, err = ls.h.log.PutLease(ctx, l.Lease, rev)
		switch {
		case err == nil:
			return l, ls.h.journal.SetEpoch(l.Epoch)
		case !kind.Is(err, kind.Conflict):
			return l, err
		}
	}
}

// keep renews the lease until ctx ends. An error of kind.Fenced says that the host has a newer
// run, or was declared gone.
func (l *lease) keep(ctx context.Context) error {
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
		case <-l.h.leases.stale:
		}
	}
}

func (l *lease) put(ctx context.Context) error {
	rev, err := l.h.log.RenewLease(ctx, l.Lease, l.rev)
	switch {
	case err == nil:
		l.rev = rev
		return nil
	case ctx.Err() != nil:
		return nil //nolint:nilerr // ctx ended
	}
	return err
}

// leave publishes at once that the run ends, instead of when the lease does. With sandboxes left
// running it is a pause: the lease remains until its end, and while it does the next run is
// expected.
func (l *lease) leave(ctx context.Context) {
	l.observe()
	l.Gone = l.Sandboxes == 0
	l.Starting = !l.Gone && !l.h.leases.draining.Load()
	l.Draining = true
	if err := l.put(ctx); err != nil {
		l.h.slog.Warn("release lease failed", "err", err)
	}
}

// observe updates the lease with the host's current load.
func (l *lease) observe() {
	began := l.h.leases.recovered.Load() // read before the drivers: else the lease might show a host without any
	l.Sandboxes, l.Processes = l.h.sandboxes.counts()
	l.Drivers, l.Isolations, l.Fits, l.FileFits, l.VolumeDrivers, l.Enforced = nil, nil, nil, nil, nil, nil
	for _, d := range l.h.drivers.Offers() {
		l.Drivers = append(l.Drivers, d.Name())
		l.Isolations = append(l.Isolations, d.Caps.Isolation)
		l.Fits = append(l.Fits, d.Caps.Fits)
		l.FileFits = append(l.FileFits, d.Caps.FileFits)
		l.Enforced = append(l.Enforced, limitNames(d.Caps.Enforced()))
		if d.Caps.Volumes {
			l.VolumeDrivers = append(l.VolumeDrivers, d.Name())
		}
	}
	l.System, l.CPU = l.h.leases.system, l.h.leases.cpu
	l.Load1 = machine.Load()
	l.MemoryTotal, l.MemoryFree = machine.Memory()
	l.DiskTotal = disk.SpaceOf(l.h.cfg.DataDir).Total
	l.Templates = l.h.templates.names()
	drains := l.h.leases.draining.Load()
	l.Starting = !drains && !began
	l.Draining = drains || l.Starting
}

// limitNames returns limits as a lease has them.
func limitNames(limits []sandbox.Limit) string {
	var names []string
	for _, l := range limits {
		names = append(names, string(l))
	}
	return strings.Join(names, " ")
}
