package sandboxes

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/commands"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/instances"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/session"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// bare returns a running sandbox of a host with nothing else.
func bare(t *testing.T, cfg Config) *hostSandbox {
	t.Helper()
	return bareIn(t, cfg, &sandbox.State{ID: sandbox.NewID(), Phase: sandbox.PhaseRunning})
}

// bareIn is bare for a sandbox in a state.
func bareIn(t *testing.T, cfg Config, s *sandbox.State) *hostSandbox {
	t.Helper()
	return newSet(t, cfg).newSandbox(s)
}

// newSet returns a set without sandboxes on a host with nothing else.
func newSet(t *testing.T, cfg Config) *Set {
	t.Helper()
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	cfg.Host, cfg.Slog, cfg.SnapshotsDir = "h", quiet, filepath.Join(dir, "snapshots")
	cfg.Fault = func(string) error { return nil }
	cfg.Spawn = func(_ string, work func(context.Context) error) {
		wg.Go(func() { work(t.Context()) })
	}
	cfg.Spool = func(string) (*os.File, error) { return nil, nil }
	if cfg.Log == nil {
		cfg.Log = new(events.Log) // it sends nothing
	}
	if cfg.Drivers == nil {
		cfg.Drivers = drivers.New(drivers.Config{})
	}
	cfg.Meter = cfg.Log.Meter()
	cfg.Instances = instances.New(instances.Config{Dir: dir, Drivers: cfg.Drivers, Slog: quiet})
	cfg.Disk = disk.New(disk.Config{Path: dir})
	cfg.Network = network.New(network.Config{})
	cfg.Snapshots = snapshots.New(snapshots.Config{Dir: cfg.SnapshotsDir, Host: cfg.Host, Log: cfg.Log, View: cfg.View, Drivers: cfg.Drivers, Slog: quiet})
	cfg.Commands = commands.New(commands.Config{Host: cfg.Host, Log: cfg.Log, Fault: cfg.Fault, Slog: quiet}, 0)
	cfg.Sessions = session.NewHost(session.HostConfig{
		Name: cfg.Host, Epoch: 2, Log: cfg.Log, View: cfg.View, Commands: cfg.Commands,
		Abort: func(error) {}, Fault: cfg.Fault, Go: wg.Go, Spawn: cfg.Spawn, Slog: quiet,
	})
	set := New()
	set.Use(cfg)
	return set
}

// fakeInstance is an instance whose shim runs a function on each connection, after its Hello.
type fakeInstance struct {
	driver.Instance
	shim func(net.Conn)
}

func (p fakeInstance) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err != nil {
			return
		}
		if _, err := theirs.Write(wire.AppendHello(nil, &wire.Hello{})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (fakeInstance) Done() <-chan struct{} { return nil }

// named is a driver with nothing but a name.
type named struct {
	driver.Driver
	name string
}

func (d named) Name() string { return d.name }

func (named) Probe(context.Context) (driver.Caps, error) { return driver.Caps{}, nil }
