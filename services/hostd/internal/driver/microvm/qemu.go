//go:build linux

package microvm

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/nslaunch"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// qemu describes a QEMU to be started, in namespaces and as a uid of its own: an attacker
// that takes it over finds QEMU's own files, read-only, and its inherited descriptors.
type qemu struct {
	dir            string // directory of its log
	shim           string // binary that starts it; see nslaunch.Process
	base           uint32 // its uid; 0: hostd's
	group          *cgroup.Group
	m              *machine
	files          channels
	diesWithParent bool // whether it dies with the thread that starts it
	trial          bool // whether it is a trial that is not executed
}

// channels are the files that QEMU inherits, by descriptor less shimFd; nil: none.
type channels [endFd - shimFd]*os.File

// take sets the file of a descriptor, if err is nil.
func (c *channels) take(fd int, f *os.File, err error) error {
	if err == nil {
		c[fd-shimFd] = f
	}
	return err
}

func (c *channels) close() {
	for _, f := range c {
		if f != nil {
			f.Close()
		}
	}
}

// start starts it; the process waits for run.
func (d *Driver) start(ctx context.Context, q *qemu) (proc *live.Proc, run func(context.Context) error, err error) {
	spec, err := d.specOf(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	shim, err := d.shims.Get(q.shim)
	if err != nil {
		return nil, nil, err
	}
	null, log, err := live.Streams(q.dir)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	defer log.Close()
	p := nslaunch.Process{
		Dir: q.dir, Shim: q.shim, Sealed: shim, Base: q.base, Group: q.group,
		Null: null, Log: log, First: [3]*os.File{null, null, null}, Mounts: []*os.File{null, null, null},
	}
	if q.diesWithParent {
		p.Dir = "" // it is the working directory of the caller's thread
	}
	if spec.Program.Device != "" && spec.HasRoot {
		dev, err := deviceDir(spec.Program.Device)
		if err != nil {
			return nil, nil, err
		}
		defer dev.Close()
		p.Mounts[0] = dev
	}
	for fd, f := range q.files {
		if f == nil {
			f = null
		}
		if fd == logFd-shimFd {
			f = log
		}
		p.Mounts = append(p.Mounts, f)
	}
	c, err := nslaunch.Start(p)
	if err != nil {
		return nil, nil, err
	}
	return c.Proc, func(ctx context.Context) error { defer c.Close(); return c.Run(ctx, q.dir, spec) }, nil
}

// program returns the path of QEMU, without links, by which it finds its files.
func (d *Driver) program() (string, error) {
	path, err := exec.LookPath(d.cfg.QEMU)
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// uid returns the first uid of a sandbox's QEMU: its own, if hostd can assign uids.
func (d *Driver) uid(id sandbox.ID) (uint32, error) {
	if !d.ranges {
		return 0, nil
	}
	return d.uids.Take(id)
}

func (d *Driver) specOf(ctx context.Context, q *qemu) (*nsinit.Spec, error) {
	program, err := d.program()
	if err != nil {
		return nil, err
	}
	shown, err := d.views.of(ctx, program)
	if err != nil {
		return nil, err
	}
	s := &nsinit.Spec{
		Program: nsinit.Program{Path: program, Shown: shown, Keep: uint32(len(q.files)), DiesWithParent: q.diesWithParent},
		Trial:   q.trial, Hostname: name, HasRoot: q.base != 0, Argv: append([]string{program}, q.m.args()...),
		Limits: []nsinit.Limit{
			{Resource: unix.RLIMIT_CORE, Max: 1}, // as in driver namespace
			// The files that it can write are its log and a snapshot.
			{Resource: unix.RLIMIT_FSIZE, Max: uint64(q.m.memoryMiB+overheadMiB) << 20},
		},
	}
	if q.m.accel == "kvm" {
		s.Program.Device = "/dev/kvm"
	}
	return s, nil
}

// deviceDir returns a directory, mounted nowhere, with a device that all may use like the
// host's device at that path.
func deviceDir(path string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	for key, value := range map[string]string{"size": "64k", "nr_inodes": "8", "mode": "755"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return nil, os.NewSyscallError("fsconfig", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	dir := os.NewFile(uintptr(fd), filepath.Dir(path))
	name := filepath.Base(path)
	err = errors.Join(
		unix.Mknodat(fd, name, unix.S_IFCHR|0o600, int(st.Rdev)),
		unix.Fchmodat(fd, name, 0o666, 0), // independent of hostd's umask
		unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}),
	)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("create device %s: %w", path, err)
	}
	return dir, nil
}

// filesOf returns the host's files that a QEMU needs: itself, its modules for
// translation, the libraries of both, and the files that it loads into a guest.
func filesOf(ctx context.Context, program string) ([]string, error) {
	prefix := filepath.Dir(filepath.Dir(program))
	files := []string{program}
	for _, pattern := range []string{"lib*/qemu/accel-*.so", "lib*/*/qemu/accel-*.so"} {
		found, err := filepath.Glob(filepath.Join(prefix, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	linker, err := interpreter(program)
	if err != nil || linker == "" { // it is static
		return files, err
	}
	for _, f := range slices.Clone(files) {
		libraries, err := librariesOf(ctx, linker, f)
		if err != nil {
			return nil, fmt.Errorf("libraries of %s: %w", f, err)
		}
		files = append(files, libraries...)
	}
	for _, dir := range []string{"qemu", "seabios", "qemu-firmware"} {
		dir = filepath.Join(prefix, "share", dir)
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			files = append(files, dir)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// interpreter returns the dynamic linker that a program names; empty: none.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			return string(bytes.TrimRight(b, "\x00")), err
		}
	}
	return "", nil
}

// librariesOf returns the files that the dynamic linker would load for a program, and the linker.
func librariesOf(ctx context.Context, linker, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, linker, "--list", program).Output()
	if err != nil {
		return nil, err
	}
	files := []string{linker}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		// As in "	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)".
		_, path, found := strings.Cut(lines.Text(), " => ")
		path, _, _ = strings.Cut(path, " (0x")
		if found && filepath.IsAbs(path) {
			files = append(files, path)
		}
	}
	return files, nil
}
