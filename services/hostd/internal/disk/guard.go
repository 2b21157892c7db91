package disk

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Config configures a Guard. All fields except Evicted are required.
type Config struct {
	Path    string                        // directory on the disk
	Users   func() []*User                // returns the sandboxes that run
	Volume  func(sandbox.VolumeID) string // returns the directory of a volume
	Shed    func() bool                   // removes a template that no sandbox uses, if there is one
	Go      func(func())                  // runs a function in the background
	Evicted func()                        // called for each sandbox that is evicted; nil: not reported
	Log     *slog.Logger
}

// User is a sandbox that uses the disk.
type User struct {
	ID        sandbox.ID
	Instance  func() driver.Instance // returns its current instance; nil without one
	Suspended func() bool            // reports whether it is paused
	Volumes   []sandbox.Mount
	Limited   bool        // to the disk that it requested
	Evicted   atomic.Bool // ended because the disk is full
}

// Guard keeps a part of the host's disk free.
type Guard struct {
	cfg   Config
	near  atomic.Bool // the disk is nearly short of space
	short atomic.Bool // the disk is short of space

	mu       sync.Mutex
	reserved uint64 // bytes reserved for snapshots that are being made
}

// New returns a guard. Its disk counts as free until Run has measured it.
func New(cfg Config) *Guard { return &Guard{cfg: cfg} }

// Run keeps some of the host's disk free for the services to store output on, until ctx ends. A
// sandbox without a disk limit could fill the disk: then no output could be stored and no sandbox
// ended. When the disk runs short, Run first removes templates that no sandbox uses, which can be
// fetched again. It then evicts the sandbox that uses the most, if it uses more than is free.
// Sandboxes without a limit are evicted before those with one.
//
// Evicting a sandbox that filled the disk through a volume frees nothing, because the volume stays.
// Run then keeps less free until there is more space, so that no other sandbox is evicted instead.
func (g *Guard) Run(ctx context.Context) error {
	k := evictor{g: g, volumes: growth{g: g}}
	for wait := evictEvery; waiting.Sleep(ctx, wait); {
		begun := time.Now()
		k.check(ctx, SpaceOf(g.cfg.Path))
		wait = max(evictEvery, evictPause*time.Since(begun))
	}
	return nil
}

// Short reports whether the disk is short of space now.
func (g *Guard) Short() bool { return len(SpaceOf(g.cfg.Path).shortages(1)) > 0 }

// EvictUntilFree ends sandboxes until the disk is not short of space, or none is left to end, and returns
// those that it ended. With shed set it removes unused templates first.
func (g *Guard) EvictUntilFree(ctx context.Context, users []*User, shed bool) (evicted []*User) {
	users = slices.Clone(users)
	for {
		shortages := SpaceOf(g.cfg.Path).shortages(1)
		if len(shortages) > 0 && shed && g.cfg.Shed() {
			continue
		}
		top := g.evictOne(ctx, users, nil, shortages)
		if top == nil {
			g.warnFull(shortages)
			return evicted
		}
		evicted = append(evicted, top.users...)
		users = slices.DeleteFunc(users, func(u *User) bool { return slices.Contains(evicted, u) })
	}
}

// Check refuses operations that would fill a disk that is short of space.
func (g *Guard) Check(what, id string) error {
	if g.short.Load() {
		return kind.New(kind.Unavailable, what, id, "the disk of the sandbox's host is full")
	}
	return nil
}

// CheckVolume refuses writes that would grow a volume while the disk is nearly short of space:
// sandboxes whose volumes grow would be evicted.
func (g *Guard) CheckVolume() error {
	if g.near.Load() {
		return kind.New(kind.Exhausted, "write to a volume", "", "not enough disk space available")
	}
	return nil
}

// Reserve reserves that much space if the disk has it, besides what must stay free and what is
// reserved already, and reports whether it did. Release ends the reservation.
func (g *Guard) Reserve(bytes uint64) bool {
	d := SpaceOf(g.cfg.Path)
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.Total > 0 && g.reserved+bytes+d.Reserve() > d.Free {
		return false
	}
	g.reserved += bytes
	return true
}

// Release ends a reservation.
func (g *Guard) Release(bytes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reserved -= bytes
}
