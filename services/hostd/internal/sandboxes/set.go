package sandboxes

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	usagemeter "github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/audit"
	"github.com/millrace/millrace/services/hostd/internal/commands"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/instances"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/prefetch"
	"github.com/millrace/millrace/services/hostd/internal/session"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/volumes"
	"github.com/millrace/millrace/services/hostd/internal/warmpool"
)

// Set has the open sandboxes of a host, and the commands for those that are not adopted yet.
type Set struct {
	cfg Config

	snapshotUnused atomic.Bool // a sandbox based on a snapshot has ended
	mu             sync.Mutex
	byID           map[sandbox.ID]*hostSandbox
	parked         map[sandbox.ID][]command.Command // for sandboxes that are not adopted yet; nil: all are
	parkedBytes    int                              // bytes of input in parked
}

// Config has the parts of a host that its sandboxes use. All fields are required.
type Config struct {
	Host         string                             // name of the host
	SnapshotsDir string                             // directory of the snapshots that are made here
	SampleEvery  time.Duration                      // interval in which the usage of a sandbox is recorded
	Spool        func(dir string) (*os.File, error) // opens the spool file of a sandbox in its directory; nil: output is kept in memory

	Log       *events.Log
	Meter     *usagemeter.Store // its view is not started
	View      *catalog.View
	Ring      *seal.Ring // opens environments in records
	Journal   *journal.Journal
	Commands  *commands.Reader
	Sessions  *session.Host
	Audits    *audit.Auditor
	Drivers   *drivers.Registry
	Shim      *instances.Shim
	Instances *instances.Store
	Warm      *warmpool.Pool
	Network   *network.Network
	Disk      *disk.Guard
	Cache     *templates.Cache
	Templates *prefetch.Fetcher
	Snapshots *snapshots.Store
	Volumes   *volumes.Store

	Fault func(point string) error                                // interrupts the host in tests
	Spawn func(what string, work func(ctx context.Context) error) // runs a function in the background until the run ends
	Slog  *slog.Logger
}

// New returns a set without sandboxes.
func New() *Set { return &Set{byID: make(map[sandbox.ID]*hostSandbox)} }

// Use sets the parts of the host. Until then, there is no sandbox. Until Run has begun, commands for
// sandboxes that are not open wait.
func (set *Set) Use(cfg Config) {
	set.cfg = cfg
	set.parked = make(map[sandbox.ID][]command.Command)
}

// Run opens every sandbox that is placed here, and passes updates of their records to the open
// sandboxes.
func (set *Set) Run(ctx context.Context) error {
	changed, stop := set.cfg.View.Changes()
	defer stop()
	var swept uint64
	var begun time.Time
	var owed time.Duration // rest owed for checks
	for {
		owed = max(0, owed-time.Since(begun))
		begun = time.Now()
		for _, s := range set.cfg.View.Sandboxes(set.unopened) {
			set.open(set.newSandbox(&s))
		}
		set.unparkAll()
		set.updateAll()
		if n := set.cfg.View.Deletions(); n != swept || set.snapshotUnused.Swap(false) {
			swept = n
			set.cfg.Snapshots.Sweep(true)
		}
		// Every sandbox of the fleet changes the view. However busy the fleet is, watch takes a
		// small part of the time. An occasional check is free: the second one mostly finds the
		// sandbox that the first saw before it was placed.
		owed += watchShare * time.Since(begun)
		if owed > watchCredit && !waiting.Sleep(ctx, owed-watchCredit) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

const (
	watchShare  = 20                    // rest after a check, as a multiple of its duration
	watchCredit = 20 * time.Millisecond // rest that may be owed
)

// mine reports whether a sandbox is this host's and has not ended.
func (set *Set) mine(s *sandbox.State) bool { return s.Host == set.cfg.Host && !s.Over() }

// unopened reports whether a sandbox is this host's and not open yet.
func (set *Set) unopened(s *sandbox.State) bool { return set.mine(s) && set.get(s.ID) == nil }

// updateAll passes the newest states to the open sandboxes, including those that other services
// have ended.
func (set *Set) updateAll() {
	for _, sb := range set.all() {
		if s, ok := set.cfg.View.Sandbox(sb.id); ok {
			sb.setDesired(&s)
		}
	}
}

// open starts a sandbox, unless it is open, and delivers the commands that are parked for it.
func (set *Set) open(sb *hostSandbox) {
	set.add(sb)
	set.unpark(sb.id)
}

func (set *Set) add(sb *hostSandbox) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.byID[sb.id] != nil {
		return
	}
	set.byID[sb.id] = sb
	set.cfg.Spawn("sandbox "+string(sb.id), func(ctx context.Context) error {
		defer set.close(sb)
		return sb.run(ctx)
	})
}

// close removes a sandbox that has ended, and then closes gone.
func (set *Set) close(sb *hostSandbox) {
	defer close(sb.gone)
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.byID, sb.id)
	if sb.req.From != "" {
		set.snapshotUnused.Store(true)
	}
}

// DestroyAll ends every sandbox, for a clean exit.
func (set *Set) DestroyAll(ctx context.Context) error {
	sandboxes := set.all()
	for _, sb := range sandboxes {
		_, err := set.cfg.View.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
			if s.Over() || s.Phase == sandbox.PhaseStopping {
				return nil, nil
			}
			return []sandbox.Body{sandbox.Stopping{Cause: CauseHostStopped}}, nil
		})
		if err != nil {
			return err
		}
		if s, ok := set.cfg.View.Sandbox(sb.id); ok {
			sb.setDesired(&s)
		}
	}
	for _, sb := range sandboxes {
		select {
		case <-sb.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// CauseHostStopped is the cause of sandboxes that end with their host's clean exit.
const CauseHostStopped = "host_stopped"

// Counts returns the current number of sandboxes and processes.
func (set *Set) Counts() (sandboxes, processes uint32) {
	for _, sb := range set.all() {
		sandboxes++
		processes += uint32(sb.session.Count())
	}
	return sandboxes, processes
}

// all returns the current sandboxes. Callers use them without holding mu: the holder of a
// sandbox's lock may wait for mu.
func (set *Set) all() []*hostSandbox {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Collect(maps.Values(set.byID))
}

func (set *Set) get(id sandbox.ID) *hostSandbox {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.byID[id]
}

// Exists reports whether a sandbox is open.
func (set *Set) Exists(id sandbox.ID) bool { return set.get(id) != nil }

// Session returns the session of an open sandbox.
func (set *Set) Session(id sandbox.ID) (*session.Session, bool) {
	sb := set.get(id)
	if sb == nil {
		return nil, false
	}
	return sb.session, true
}

// Network returns the network of an open sandbox.
func (set *Set) Network(id sandbox.ID) (*network.Sandbox, bool) {
	sb := set.get(id)
	if sb == nil {
		return nil, false
	}
	return sb.network, true
}

// Networks returns the networks of the current sandboxes.
func (set *Set) Networks() []*network.Sandbox {
	var all []*network.Sandbox
	for _, sb := range set.all() {
		all = append(all, sb.network)
	}
	return all
}

// DiskUsers returns the running sandboxes as users of the disk.
func (set *Set) DiskUsers() []*disk.User {
	var all []*disk.User
	for _, sb := range set.measured() {
		all = append(all, sb.disk)
	}
	return all
}

// UsesVolume reports whether a sandbox of this host uses a volume.
func (set *Set) UsesVolume(id sandbox.VolumeID) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, sb := range set.byID {
		for _, m := range sb.req.Volumes {
			if m.Volume == id {
				return true
			}
		}
	}
	return false
}
