package instances

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	// BuildsPerCPU is the maximum of concurrent creations per CPU.
	BuildsPerCPU  = 2
	createTimeout = 60 * time.Second
)

// Config configures a Store. All fields are required.
type Config struct {
	Dir     string // directory of all instances
	Scratch string // directory in which drivers probe
	Shim    *Shim
	Drivers *drivers.Registry
	Journal *journal.Journal
	Cache   *templates.Cache
	Disk    *disk.Guard
	Wait    func() // waits for the work that Disk began
	Slog    *slog.Logger
}

// Store has the instances of a host.
type Store struct {
	cfg     Config
	builds  chan struct{}       // has a value for each instance that is being created
	evicted map[sandbox.ID]bool // see EvictBeforeLease
}

// New returns a store.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, builds: make(chan struct{}, BuildsPerCPU*runtime.GOMAXPROCS(0))}
}

// Dir returns the directory of an instance.
func (st *Store) Dir(id sandbox.ID) string { return filepath.Join(st.cfg.Dir, string(id)) }

// MakeDir makes the directory of all instances.
func (st *Store) MakeDir() error { return os.MkdirAll(st.cfg.Dir, 0o700) }

// Spec returns a spec with which a driver can attach to a sandbox. To create one, it lacks the
// template.
func (st *Store) Spec(id sandbox.ID, req *sandbox.Requested) driver.Spec {
	shim := st.cfg.Shim.Program()
	args := append(slices.Clone(shim[1:]), "-oom-fd", strconv.Itoa(driver.OOMFd), "-forks-fd", strconv.Itoa(driver.ForksFd))
	if req.MemoryMiB > 0 {
		args = append(args, "-memory", strconv.FormatUint(uint64(req.MemoryMiB), 10))
	}
	return driver.Spec{
		ID: id, Template: req.Template, CPUMilli: req.CPUMilli, MemoryMiB: req.MemoryMiB, DiskMiB: req.DiskMiB, PIDs: req.PIDs,
		Dir: st.Dir(id), Cgroup: true, ShimPath: shim[0], ShimArgs: args,
	}
}

// Prepare lets a driver do its work per template before the first instance of it. A sandbox that
// waits for that occupies no build slot and does not hold up the warm pool.
func Prepare(ctx context.Context, d driver.Driver, spec *driver.Spec) error {
	p, ok := d.(driver.Preparer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return p.Prepare(ctx, spec)
}

// Build creates an instance, with bounded concurrency: without the bound, a hundred concurrent
// creates would all finish when the last one does.
func (st *Store) Build(ctx context.Context, d driver.Driver, spec driver.Spec) (driver.Instance, error) {
	select {
	case st.builds <- struct{}{}:
		defer func() { <-st.builds }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return d.Create(ctx, spec)
}

// Attach attaches to an instance of a driver, by the driver's name. The driver is nil if it does
// not exist on this machine. Attach returns NotFound if the instance does not exist.
func (st *Store) Attach(ctx context.Context, name string, id sandbox.ID, req *sandbox.Requested) (driver.Driver, driver.Instance, error) {
	d, err := st.cfg.Drivers.Driver(name)
	if err != nil {
		return nil, nil, err
	}
	inst, err := d.Attach(ctx, st.Spec(id, req))
	if err != nil {
		return d, nil, err
	}
	return d, inst, nil
}

// Remove has a driver remove an instance. Without inst it attaches to what exists: a failed
// create may have left something that it could not remove in time.
func (st *Store) Remove(ctx context.Context, d driver.Driver, id sandbox.ID, inst driver.Instance) (err error) {
	if inst == nil {
		inst, err = d.Attach(ctx, st.Spec(id, &sandbox.Requested{}))
	}
	if err == nil {
		err = inst.Destroy(ctx)
	}
	if err != nil && !kind.Is(err, kind.NotFound) {
		return err
	}
	return os.RemoveAll(st.Dir(id))
}

// removeBy is Remove with the driver of that name.
func (st *Store) removeBy(ctx context.Context, name string, id sandbox.ID) error {
	d, err := st.cfg.Drivers.Driver(name)
	if err != nil {
		return err
	}
	return st.Remove(ctx, d, id, nil)
}
