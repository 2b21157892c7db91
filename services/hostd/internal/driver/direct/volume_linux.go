package direct

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// mountVolumes gives the thread, and those that it starts from now on, a mount namespace
// with the volumes at their paths. A path that does not exist is
// created on the host's own disk, and stays.
func mountVolumes(volumes []driver.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// Later mounts of the host appear here; mounts made here do not appear there.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	for _, v := range volumes {
		if err := os.MkdirAll(v.Path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(v.Source, v.Path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount a volume at %s: %w", v.Path, err)
		}
	}
	return nil
}

// canMountVolumes reports whether mountVolumes works here.
func canMountVolumes() bool {
	return live.OnThread("/", func() error { return unix.Unshare(unix.CLONE_NEWNS) }) == nil
}
