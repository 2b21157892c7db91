package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// instantSnapshot is an instance whose snapshot with memory takes no time.
type instantSnapshot struct{ fakeInstance }

func (instantSnapshot) Snapshot(context.Context, string, bool) error { return nil }

// An instance is paused during a snapshot with memory: its shim receives the time afterwards.
func TestTimeIsSentAfterASnapshotOfMemory(t *testing.T) {
	sb := bare(t, Config{})
	times := make(chan struct{})
	sb.current.Set(sb.id, instantSnapshot{fakeInstance{shim: func(c net.Conn) {
		for r := wire.NewReader(c); ; {
			ty, _, err := r.Next()
			if err != nil {
				return
			}
			if ty == wire.TypeTime {
				close(times)
			}
		}
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { sb.session.Serve(ctx, &sb.pausing, sb.running) })
	defer serving.Wait()
	defer cancel()
	<-sb.session.Ready()
	if err := sb.snapshots.write(t.Context(), sb.cfg.snapshotDir("s"), &command.TakeSnapshot{Memory: true, Internal: true}); err != nil {
		t.Fatal(err)
	}
	<-times
}

// largeInstance is an instance that uses much of the disk.
type largeInstance struct {
	driver.Instance
	has uint64
}

func (p largeInstance) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{DiskBytes: p.has}, nil
}

// Space reserved for one snapshot is not available to another.
func TestDiskSpaceIsReservedOnce(t *testing.T) {
	cache, err := templates.Open(templates.Config{Dir: filepath.Join(t.TempDir(), "templates"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	sb := bare(t, Config{Cache: cache})
	d := disk.SpaceOf(filepath.Dir(sb.cfg.SnapshotsDir))
	if d.Free < 10*d.Reserve() {
		t.Skip("free disk space is unknown or too small")
	}
	sb.current.Set(sb.id, largeInstance{has: d.Free / 3 * 2})
	made, err := sb.snapshots.reserveDisk(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.snapshots.reserveDisk(t.Context()); !kind.Is(err, kind.Unavailable) {
		t.Errorf("second reservation: %v", err)
	}
	made()
	if made, err = sb.snapshots.reserveDisk(t.Context()); err != nil {
		t.Errorf("after the first was made: %v", err)
	} else {
		made()
	}
}

// full is an instance on a full disk.
type full struct{ driver.Instance }

func (full) Snapshot(context.Context, string, bool) error {
	return fmt.Errorf("write snapshot: %w", syscall.ENOSPC)
}

// The error of a snapshot says that the disk is full.
func TestSnapshotOnAFullDisk(t *testing.T) {
	sb := bare(t, Config{})
	sb.current.Set(sb.id, full{})
	err := sb.snapshots.write(t.Context(), filepath.Join(t.TempDir(), "snapshot"), &command.TakeSnapshot{Memory: true})
	if !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "is full") {
		t.Errorf("%v, %q", err, kind.Message(err))
	}
}

// interrupting is an instance whose snapshot ends a context.
type interrupting struct {
	driver.Instance
	end context.CancelFunc
}

func (p interrupting) Snapshot(context.Context, string, bool) error { p.end(); return nil }

func (interrupting) Stats(context.Context) (driver.Stats, error) { return driver.Stats{}, nil }

// A host that is interrupted while it stores a snapshot in the log keeps the files: the log may have
// the snapshot, and the next run would neither take it again nor find anything to copy.
func TestFilesOfASnapshotStayUntilTheLogIsKnownToLackIt(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	sb := bare(t, Config{Log: log, View: eventstest.View(t, log)})
	ctx, cancel := context.WithCancel(t.Context())
	sb.driver, sb.adopted = named{name: "direct"}, true
	sb.current.Set(sb.id, interrupting{end: cancel})
	id := sandbox.NewSnapshotID()
	if err := sb.snapshots.capture(ctx, command.TakeSnapshot{ID: id, Memory: true}); !kind.Is(err, kind.Unavailable) {
		t.Errorf("got %v, want Unavailable", err)
	}
	if _, err := os.Stat(sb.cfg.snapshotDir(id)); err != nil {
		t.Error(err)
	}
}

// A driver may be dropped while a sandbox is created from a snapshot.
func TestSnapshotDoesNotFitADroppedDriver(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "t", Host: "elsewhere", Driver: drivers.Late, Fits: "build 1"}
	if err := log.PutSnapshot(t.Context(), &snap); err != nil {
		t.Fatal(err)
	}
	offered := drivers.New(drivers.Config{Fixed: []driver.Driver{named{name: "other"}}})
	if err := errors.Join(offered.Open(t.Context()), offered.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	sb := bare(t, Config{Log: log, View: eventstest.View(t, log), Drivers: offered})
	sb.driver, sb.req.From = named{name: drivers.Late}, snap.ID
	if dir, err := sb.files.ensureSnapshot(t.Context()); !kind.Is(err, kind.Precondition) {
		t.Errorf("snapshot at %q, %v", dir, err)
	}
}
