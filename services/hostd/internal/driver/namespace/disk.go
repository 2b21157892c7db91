//go:build linux

package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// A sandbox whose disk is limited writes to a file system of its own, in a sparse
// file in its directory. It is not mounted in any namespace of the host, and only
// the kernel writes its blocks; it is unmounted with the sandbox's last process.
const (
	diskFile = "disk" // in Spec.Dir

	minDiskMiB = 8 // minimum size of a file system

	// A sandbox does not outlive a crash of the host, so there is no journal. The
	// tables are left as holes, which read as zeroes.
	mkfs = "mkfs.ext4"
)

// makeFS creates a file system in a new file.
func makeFS(ctx context.Context, file string, mib uint32) error {
	path, err := exec.LookPath(mkfs)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil { // it may not be in an ordinary PATH
			path, err = exec.LookPath(filepath.Join(dir, mkfs))
		}
	}
	if err != nil {
		return fmt.Errorf("%s is missing (Debian: e2fsprogs)", mkfs)
	}
	cmd := exec.CommandContext(ctx, path, "-qF", "-m0", "-b4096", "-O^has_journal,^resize_inode", "-Elazy_itable_init=1,nodiscard",
		file, strconv.FormatUint(uint64(mib), 10)+"M")
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, out)
	}
	return nil
}

// blankDisk opens a file with an empty file system. One is kept for each of the most
// recently used sizes.
func (d *Driver) blankDisk(ctx context.Context, mib uint32) (*os.File, error) {
	dir, err := d.templatesDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("disk-2-%d.ext4", mib))
	now := time.Now()
	os.Chtimes(path, now, now) //nolint:errcheck // otherwise it is removed sooner
	if f, err := os.Open(path); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "disk")
	if err := makeFS(ctx, file, mib); err != nil {
		return nil, err
	}
	f, err := os.Open(file) // also when it is removed
	if err == nil {
		err = errors.Join(os.Rename(file, path), pruneBlanks(dir))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxBlanks is the number of sizes that are kept: clients choose them.
const maxBlanks = 16

// pruneBlanks removes the least recently used files with empty file systems.
func pruneBlanks(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "disk-*.ext4"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, path := range found {
		if fi, err := os.Stat(path); err == nil {
			used[path] = fi.ModTime()
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	for _, path := range found[min(maxBlanks, len(found)):] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// diskMiB returns the size of the disk of a sandbox in dir: no larger than the host's, since
// a larger one is useless and its tables would fill the host's disk.
func diskMiB(dir string, requested uint32) (uint32, error) {
	var host unix.Statfs_t
	if err := unix.Statfs(dir, &host); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint32(max(min(uint64(requested), host.Blocks*uint64(host.Bsize)>>20), minDiskMiB)), nil
}

// newDisk creates the disk of a sandbox and mounts it, in no namespace: it is
// unmounted with the last descriptor, or the last mount over it. loop
// is the device.
func (d *Driver) newDisk(ctx context.Context, dir string, mib, owner uint32) (mount *os.File, loop string, err error) {
	if mib, err = diskMiB(dir, mib); err != nil {
		return nil, "", err
	}
	blank, err := d.blankDisk(ctx, mib)
	if err != nil {
		return nil, "", err
	}
	defer blank.Close()
	image := filepath.Join(dir, diskFile)
	if err := live.CopyFile(ctx, blank, image); err != nil {
		return nil, "", err
	}
	dev, err := attachLoop(image)
	if err != nil {
		return nil, "", fmt.Errorf("loop device for %s: %w", image, err)
	}
	defer dev.Close()
	if mount, err = mountDisk(dev.Name()); err != nil {
		return nil, "", err
	}
	if err := unix.Fchownat(int(mount.Fd()), "", int(owner), int(owner), unix.AT_EMPTY_PATH); err != nil {
		mount.Close()
		return nil, "", err
	}
	return mount, dev.Name(), nil
}

// mountDisk mounts the file system on a device. If it is mounted already, this
// adds another mount.
func mountDisk(dev string) (*os.File, error) {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "source", dev); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	// Unneeded tables are not written, and removed blocks are returned to the host.
	for _, flag := range []string{"noinit_itable", "discard"} {
		if err := unix.FsconfigSetFlag(fs, flag); err != nil {
			return nil, os.NewSyscallError("fsconfig "+flag, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dev, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(fd), dev), nil
}

// attachLoop gives a file a block device, which exists as long as it is in use.
func attachLoop(path string) (*os.File, error) {
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	const tries = 1000
	for range tries {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd())}
		// Without direct I/O everything would be in the page cache twice.
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) { // another process was faster
			return nil, os.NewSyscallError("LOOP_CONFIGURE", err)
		}
	}
	return nil, unix.EBUSY
}

// openDisk mounts a running sandbox's disk once more, to measure it.
func openDisk(dir, loop string) (*os.File, error) {
	dev, err := os.Open(loop)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", loop, err)
	}
	var image unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, diskFile), &image); err != nil {
		return nil, err
	}
	if info.Inode != image.Ino {
		return nil, fmt.Errorf("%s is no longer the disk of this sandbox", loop)
	}
	return mountDisk(loop)
}

// disks returns the reason why the disk of a sandbox cannot be limited; nil if it can.
func (d *Driver) disks() error {
	d.diskOnce.Do(func() { d.diskErr = d.tryDisk() })
	return d.diskErr
}

func (d *Driver) tryDisk() error {
	if !d.ranges {
		return errors.New("hostd is not root")
	}
	s, done, err := live.ProbeSpec(d.cfg.Scratch)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), createTimeout)
	defer cancel()
	mount, _, err := d.newDisk(ctx, s.Dir, minDiskMiB, 0)
	if err != nil {
		return err
	}
	return mount.Close()
}

// limitsDisk reports whether the sandbox gets a disk of its own.
func (d *Driver) limitsDisk(s *driver.Spec) bool { return s.DiskMiB > 0 && d.disks() == nil }
