package hostd

import (
	"path/filepath"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/instances"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/machine"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/volumes"
	"github.com/millrace/millrace/services/hostd/internal/warmpool"
)

const (
	sandboxDir = "sandboxes"
	warmMemory = 16 // the warm pool may have this fraction of the machine's memory
)

// newInstances returns the instances of the host. Its drivers and its disk must be there.
func (h *host) newInstances() *instances.Store {
	return instances.New(instances.Config{
		Dir: filepath.Join(h.cfg.DataDir, sandboxDir), Scratch: h.cfg.scratch(), Shim: h.shim, Drivers: h.drivers,
		Journal: h.journal, Cache: h.cache, Disk: h.disk, Wait: h.wg.Wait, Slog: h.slog,
	})
}

// newWarm returns the warm pool of the host.
func (h *host) newWarm() *warmpool.Pool {
	total, _ := machine.Memory()
	return warmpool.New(warmpool.Config{
		Max: max(h.cfg.Warm, 0), MemoryMiB: total >> 20 / warmMemory, Dir: h.instances.Dir, Prepare: instances.Prepare, Create: h.instances.Build, Remove: h.instances.Remove, Log: h.slog,
		Hold: func(id template.ID) *templates.Tree {
			t, _ := h.cache.Hold(id)
			return t
		},
		Record: func(id sandbox.ID, driver string, tree *templates.Tree) error {
			return h.journal.SetSandbox(id, journal.Created{Driver: driver, Trees: journal.TreesOf(tree)})
		},
		Forget:   h.journal.Forget,
		Acquired: h.cfg.metrics.Acquired,
	})
}

// newDisk returns the guard of the host's disk.
func (h *host) newDisk() *disk.Guard {
	return disk.New(disk.Config{
		Volume: func(id sandbox.VolumeID) string { return volumes.Path(h.volumeDir(), id) },
		Path:   h.cfg.DataDir, Users: h.sandboxes.DiskUsers, Shed: h.cache.Shed, Go: h.wg.Go, Evicted: h.cfg.metrics.Evicted.Inc, Log: h.slog,
	})
}
