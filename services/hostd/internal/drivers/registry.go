package drivers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Config configures a Registry. Stored is required by Restore, BuildShim by Open, and Changed by
// Settle.
type Config struct {
	Names   []string        // drivers to offer, the first is the default; default: Auto
	Fixed   []driver.Driver // instead of Names, in tests
	Version string          // of the program; capabilities that another version stored are not used
	Scratch string          // directory in which drivers probe; empty: none
	Log     *slog.Logger

	MachineInit func() string // see microvm.Config.Init
	Kernel      string        // directory of the kernel of microvm and firecracker
	TCG         bool          // allows microvm to translate where KVM does not work
	JailPool    string
	JailTools   map[string]string

	Store     func(*Stored) error         // stores what the drivers can do, for the next run; nil: nothing is stored
	Stored    func() (Stored, error)      // returns what a previous run stored
	BuildShim func(context.Context) error // builds the small shim
	Changed   func()                      // called when a driver was added or removed
}

// Offer is a driver that a host offers, and its capabilities here.
type Offer struct {
	driver.Driver
	Caps driver.Caps
}

// Stored are the capabilities of a run's drivers, and the conditions under which they were
// probed.
type Stored struct {
	Boot, Version string
	UID           int
	Asked         []string // Config.Names
	Drivers       []StoredDriver
}

// StoredDriver is a driver in Stored.
type StoredDriver struct {
	Name string
	Caps driver.Caps
}

// Registry has the drivers of a run: one per name, since a driver keeps the host's resources of
// all its sandboxes, created or adopted.
type Registry struct {
	cfg     Config
	opened  chan struct{} // closed when the drivers are open
	settled chan struct{} // closed when no further driver will be added

	unverified bool    // the capabilities come from a previous run and are unverified
	verified   []Offer // the verified drivers, for the next run; of startup, then of Settle's goroutine

	builtMu sync.Mutex // held while a driver is built
	built   map[string]driver.Driver

	mu     sync.Mutex
	offers []Offer // the first is the default
}

// New returns a registry that offers no driver yet.
func New(cfg Config) *Registry {
	return &Registry{
		cfg: cfg, opened: make(chan struct{}), settled: make(chan struct{}), built: make(map[string]driver.Driver),
	}
}

// Close stops the background work of all drivers.
func (r *Registry) Close() error {
	r.builtMu.Lock()
	defer r.builtMu.Unlock()
	var all []error
	for _, d := range r.built {
		if c, ok := d.(io.Closer); ok {
			all = append(all, c.Close())
		}
	}
	return errors.Join(all...)
}

// build returns the run's driver with a name.
func (r *Registry) build(name string) (driver.Driver, error) {
	r.builtMu.Lock()
	defer r.builtMu.Unlock()
	d, err := r.built[name], error(nil)
	if d == nil {
		if d, err = build(name, &r.cfg); err == nil {
			r.built[name] = d
		}
	}
	return d, err
}

// Driver returns a driver by name, even if it is not offered any more, or yet.
func (r *Registry) Driver(name string) (driver.Driver, error) {
	for _, o := range r.Offers() {
		if o.Name() == name {
			return o.Driver, nil
		}
	}
	for _, d := range r.cfg.Fixed {
		if d.Name() == name {
			return d, nil
		}
	}
	return r.build(name)
}

// Offers returns the drivers that are available now; nil before they are known.
func (r *Registry) Offers() []Offer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.offers)
}

// Offer returns an available driver by name; the empty name is the default.
func (r *Registry) Offer(name string) (Offer, bool) {
	for _, o := range r.Offers() {
		if name == "" || o.Name() == name {
			return o, true
		}
	}
	return Offer{}, false
}

// Open creates the configured drivers, probes them and offers them.
func (r *Registry) Open(ctx context.Context) error {
	if err := r.buildNamed(ctx); err != nil {
		return err
	}
	all, err := r.probe(ctx)
	if err != nil {
		return err
	}
	r.set(all)
	return r.store(all)
}

// set offers the drivers that a run starts with.
func (r *Registry) set(all []Offer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offers = all
	close(r.opened)
}

// store stores what the drivers can do, for the next run.
func (r *Registry) store(all []Offer) error {
	if r.verified = all; r.cfg.Store == nil {
		return nil
	}
	return r.cfg.Store(r.stored(all))
}

// stored returns the drivers' capabilities as they are stored.
func (r *Registry) stored(all []Offer) *Stored {
	o := &Stored{Boot: bootID(), Version: r.cfg.Version, UID: os.Geteuid(), Asked: r.cfg.Names}
	for _, d := range all {
		o.Drivers = append(o.Drivers, StoredDriver{d.Name(), d.Caps})
	}
	return o
}

// Restore offers the drivers that were stored by a previous run under the same
// conditions, when that left sandboxes; they are verified after those are adopted. Probing takes
// from some 10 ms to seconds per driver.
func (r *Registry) Restore() {
	if r.cfg.Fixed != nil {
		return
	}
	was, err := r.cfg.Stored()
	now := r.stored(nil)
	if err != nil || now.Boot == "" || was.Boot != now.Boot || was.Version != now.Version || was.UID != now.UID ||
		!slices.Equal(was.Asked, now.Asked) || len(was.Drivers) == 0 {
		return
	}
	var all []Offer
	for _, o := range was.Drivers {
		d, err := r.build(o.Name)
		if err != nil {
			return
		}
		all = append(all, Offer{d, o.Caps})
	}
	r.unverified = true
	r.set(all)
}

// Settle probes the drivers that were not probed yet.
func (r *Registry) Settle(ctx context.Context) error {
	defer close(r.settled)
	if err := r.prove(ctx); err != nil {
		return err
	}
	return r.offerLate(ctx)
}

// proveAfter leaves the machine to the adoption of sandboxes and their output.
const proveAfter = 2 * time.Second

// prove probes drivers whose capabilities came from the journal. A host whose drivers all fail
// ends, as it would have ended at its start; other changes count from the next run on.
func (r *Registry) prove(ctx context.Context) error {
	if !r.unverified || !waiting.Sleep(ctx, proveAfter) {
		return nil
	}
	all, err := New(r.cfg).probe(ctx) // the run's own drivers are in use
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	if err != nil {
		return err
	}
	return r.store(all)
}

// Await returns a driver by name; the empty name is the default. It waits for drivers that
// are not open yet: sandboxes are adopted before their drivers are.
func (r *Registry) Await(ctx context.Context, name string) (Offer, bool) {
	for _, known := range []chan struct{}{r.opened, r.settled} {
		select {
		case <-known:
		case <-ctx.Done():
		}
		if o, ok := r.Offer(name); ok || name != Late {
			return o, ok
		}
	}
	return Offer{}, false
}

// bootID identifies this boot of the machine; empty where it is unknown.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
