//go:build linux

package nsinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The only user besides root; the numbers are those of E2B's images.
const (
	userID  = 1000
	ttyGID  = 5
	rootDir = 0o755
)

// Mount points while the view is built. A file system in memory holds the
// empty directories, because making sixty on a disk would take most of the time
// of a create; it is mounted where nothing that is needed can be. What
// the sandbox writes goes to the working directory, the sandbox's own on the
// host's disk.
const (
	memory  = "/sys"
	root    = memory + "/root"
	skel    = memory + "/skel"
	usrSkel = memory + "/usr"
	etcSkel = memory + "/etc"
	layers  = memory + "/layers"
	disk    = memory + "/disk"

	memoryOptions = "mode=755,size=16m,nr_inodes=8k"

	over    = "upper"
	work    = "work"
	usrOver = "usr.upper"
	usrWork = "usr.work"
	etcOver = "etc.upper"
	etcWork = "etc.work"
)

// Uppers returns the directories in the sandbox's own that contain its changes.
func Uppers() []string { return []string{over, usrOver, etcOver} }

// step is a part of the work, and the prefix of its errors.
type step struct {
	name string
	do   func(*Spec) error
}

func (s *Spec) run(steps []step) error {
	for _, step := range steps {
		if err := step.do(s); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// makeView builds the sandbox's root and moves this process into it.
func makeView(s *Spec) error {
	unix.Umask(0)
	defer unix.Umask(0o022)
	switch {
	case s.Program.Path != "":
		return s.run(programSteps)
	case s.Tree != "":
		return s.run(treeSteps)
	}
	return s.run(hostSteps)
}

// hostSteps build a root from the host's own files.
var hostSteps = []step{
	{"prepare mounts", prepare},
	{"take volumes", takeVolumes},
	{"make directories", skeleton},
	{"mount root", func(s *Spec) error { return overlay(root, s.below(over)+skel, over, work) }},
	{"mount /usr", mountUsr},
	{"mount /etc", mountEtc},
	{"enter root", func(*Spec) error { return unix.Chdir(root) }},
	{"mount host directories", bindAll},
	{"mount /proc", mountProc},
	{"mount /dev", mountDev},
	{"pivot root", pivot},
	{"mount configuration", func(*Spec) error { return MountConfig() }},
	{ShowVolumes, showVolumes},
}

func mountProc(*Spec) error {
	return unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// ownMemory mounts the file system in memory. Mounts from here on are visible only in
// this namespace.
func ownMemory(*Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", memory, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, memoryOptions)
}

func prepare(s *Spec) error {
	if err := ownMemory(s); err != nil {
		return err
	}
	if err := takeDisk(s); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	for _, d := range []string{root, skel, usrSkel, etcSkel, layers, over, work, usrOver, usrWork, etcOver, etcWork} {
		if err := unix.Mkdir(d, rootDir); err != nil {
			return &os.PathError{Op: "mkdir", Path: d, Err: err}
		}
	}
	return takeLayers(s)
}

// takeDisk changes to the sandbox's own disk, if it has one.
func takeDisk(s *Spec) error {
	if !s.Disk {
		return nil
	}
	if err := unix.Mkdir(disk, rootDir); err != nil {
		return err
	}
	if err := unix.MoveMount(fdDisk, "", unix.AT_FDCWD, disk, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	return unix.Chdir(disk)
}

// takeLayers mounts the layers of a snapshot.
func takeLayers(s *Spec) error {
	if s.Below == "" {
		return nil
	}
	if err := mountHostDir(s, fdBelow, s.Below, layers); err != nil {
		return fmt.Errorf("mount the snapshot: %w", err)
	}
	return nil
}

// mountHostDir mounts the host's directory from. If hostd is root of the machine, the
// driver passes it as a mount whose owners are mapped to this user namespace;
// the sandbox needs no permission on the path.
func mountHostDir(s *Spec, fd int, from, to string) error {
	if s.HasRoot {
		return unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// below returns the layers of a snapshot under an upper directory, the
// uppermost first, each followed by a separator.
func (s *Spec) below(upper string) string {
	var b strings.Builder
	for i := int(s.Layers) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "%s/%d/%s:", layers, i, upper)
	}
	return b.String()
}

// restrict adds restrictions to a mount. A plain remount would also try to remove
// the restrictions of the host's mount, which is refused here.
func restrict(path string, flags uint, attr uint64) error {
	return unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: attr})
}

// dirs returns the directories of a root besides /usr and those of Spec.
func dirs() []dir {
	return []dir{
		{"app", rootDir, 0}, {"app/config", rootDir, 0}, {"home", rootDir, 0}, {"home/user", rootDir, userID}, {"root", 0o700, 0},
		{"tmp", 0o1777, 0}, {"usr", rootDir, 0}, {"etc", rootDir, 0}, {"proc", 0o555, 0}, {"sys", 0o555, 0}, {"dev", rootDir, 0},
		{"mnt", rootDir, 0}, {"media", rootDir, 0}, {"opt", rootDir, 0}, {"srv", rootDir, 0},
		{"run", rootDir, 0}, {"run/lock", 0o1777, 0}, {"run/user", rootDir, 0}, {"run/user/1000", 0o700, userID},
		{"var", rootDir, 0}, {"var/tmp", 0o1777, 0}, {"var/log", rootDir, 0}, {"var/cache", rootDir, 0},
		{"var/lib", rootDir, 0}, {"var/spool", rootDir, 0}, {"var/mail", rootDir, 0}, {"var/local", rootDir, 0},
	}
}

type dir struct {
	path  string
	mode  uint32
	owner int
}

func skeleton(s *Spec) error {
	for _, d := range dirs() {
		path := filepath.Join(skel, d.path)
		if err := unix.Mkdir(path, d.mode); err != nil {
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		// Without a uid range, everything belongs to the only user already.
		if s.HasRoot && d.owner != 0 {
			if err := unix.Lchown(path, d.owner, d.owner); err != nil {
				return &os.PathError{Op: "chown", Path: path, Err: err}
			}
		}
	}
	links := append([]Text{{"var/run", "/run"}, {"var/lock", "/run/lock"}}, s.Links...)
	for _, l := range links {
		if err := unix.Symlink(l.Body, filepath.Join(skel, l.Name)); err != nil {
			return &os.PathError{Op: "symlink", Path: l.Name, Err: err}
		}
	}
	if err := errors.Join(makeOwnedDirs(usrSkel, s.UsrDirs), makeOwnedDirs(etcSkel, s.EtcDirs)); err != nil {
		return err
	}
	return fill(s)
}

// makeOwnedDirs makes directories of a higher layer, whose owner applies to the directories
// that they are merged with.
func makeOwnedDirs(skel string, dirs []string) error {
	for _, d := range dirs {
		if err := unix.Mkdir(filepath.Join(skel, d), rootDir); err != nil {
			return &os.PathError{Op: "mkdir", Path: d, Err: err}
		}
	}
	return nil
}

// fill makes the initial files of a sandbox.
func fill(s *Spec) error {
	for i := range s.Files {
		f := &s.Files[i]
		in, name := skel, f.Name
		switch top, rest, _ := strings.Cut(f.Name, "/"); top {
		case "usr":
			in, name = usrSkel, rest
		case "etc":
			in, name = etcSkel, rest
		}
		if err := f.write(filepath.Join(in, name), s.HasRoot); err != nil {
			return err
		}
	}
	return nil
}

// write makes the file at path, with a umask of 0. Without a uid range it belongs to the only user.
func (f *File) write(path string, owners bool) error {
	mode := f.Mode
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(filepath.Dir(path), rootDir); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(f.Body), os.FileMode(mode&0o777)); err != nil {
		return err
	}
	if owners && f.Owner != 0 {
		if err := unix.Lchown(path, int(f.Owner), int(f.Owner)); err != nil {
			return &os.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	if mode <= 0o777 {
		return nil
	}
	return unix.Chmod(path, mode) // after chown, which clears set-uid
}

// mountUsr mounts the host's /usr. Its files belong to uids that are not mapped
// inside, so that even the sandbox's root has only the permissions of others on
// them, except for UsrDirs. Set-uid programs of the host have unmapped uids, too: only the
// sandbox's own gain privileges.
func mountUsr(s *Spec) error {
	return overlayWith(root+"/usr", s.below(usrOver)+usrSkel+":/usr", usrOver, usrWork, s.gains())
}

func mountEtc(s *Spec) error {
	// By its descriptor: its path would be visible to all inside, and with it the home of
	// hostd's user; and it may contain the character that separates layers.
	fd, err := unix.Open(s.EtcLower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: s.EtcLower, Err: err}
	}
	defer unix.Close(fd)
	return overlay(root+"/etc", fmt.Sprintf("%s%s:/proc/self/fd/%d", s.below(etcOver), etcSkel, fd), etcOver, etcWork)
}

// overlay mounts an overlay that a user namespace may make. Volatile: nothing in it
// outlives a crash of the host, so that its processes never wait for the host's
// disk, and cannot make others wait by a sync.
func overlay(to, lower, upper, work string) error {
	return overlayWith(to, lower, upper, work, unix.MS_NOSUID|unix.MS_NODEV)
}

func overlayWith(to, lower, upper, work string, flags uintptr) error {
	return unix.Mount("overlay", to, "overlay", flags,
		"lowerdir="+lower+",upperdir="+upper+",workdir="+work+",userxattr,volatile")
}

func bindAll(s *Spec) error {
	for _, n := range s.Binds {
		if err := unix.Mkdir(n, rootDir); err != nil {
			return &os.PathError{Op: "mkdir", Path: n, Err: err}
		}
		if err := bindReadOnly("/"+n, n); err != nil {
			return fmt.Errorf("/%s: %w", n, err)
		}
	}
	return nil
}

// bindReadOnly mounts the host's directory with all mounts in it.
func bindReadOnly(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return restrict(to, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

func mountDev(s *Spec) error {
	const quiet = unix.MS_NOSUID | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", "dev", "tmpfs", quiet, "mode=755,size=64k,nr_inodes=256"); err != nil {
		return err
	}
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		to := filepath.Join("dev", n)
		if err := touch(to); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+n, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("/dev/%s: %w", n, err)
		}
	}
	for _, l := range []Text{
		{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
	} {
		if err := unix.Symlink(l.Body, filepath.Join("dev", l.Name)); err != nil {
			return err
		}
	}
	pts := []string{"newinstance", "ptmxmode=0666", "mode=0620", "max=1024"}
	if s.HasRoot {
		pts = append(pts, fmt.Sprintf("gid=%d", ttyGID))
	}
	for _, m := range []struct {
		fs, to, opt string
		flags       uintptr
	}{
		{"devpts", "dev/pts", strings.Join(pts, ","), quiet},
		{"tmpfs", "dev/shm", fmt.Sprintf("mode=1777,size=%dm", s.ShmMiB), quiet | unix.MS_NODEV},
	} {
		if err := unix.Mkdir(m.to, rootDir); err != nil {
			return err
		}
		if err := unix.Mount(m.fs, m.to, m.fs, m.flags, m.opt); err != nil {
			return fmt.Errorf("/%s: %w", m.to, err)
		}
	}
	return nil
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return f.Close()
}

// pivot makes the working directory the root and unmounts the host's.
func pivot(*Spec) error {
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// maskProc hides the parts of /proc that reach beyond the sandbox. Much of it is
// also inaccessible since its owner is not mapped; this does not rely on that.
func maskProc(*Spec) error {
	for _, n := range []string{"kcore", "keys", "key-users", "timer_list", "timer_stats", "latency_stats", "sched_debug",
		"sysrq-trigger", "kallsyms", "kmsg", "slabinfo", "vmallocinfo", "config.gz"} {
		if err := unix.Mount("/dev/null", "/proc/"+n, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	for _, n := range []string{"acpi", "asound", "scsi"} {
		err := unix.Mount("tmpfs", "/proc/"+n, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "size=0,nr_inodes=1")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	// A trigger that is written to pressure causes unlimited work for the kernel.
	for _, n := range []string{"bus", "driver", "fs", "irq", "pressure", "sys"} {
		path := "/proc/" + n
		err := unix.Mount(path, path, "", unix.MS_BIND, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = restrict(path, 0, unix.MOUNT_ATTR_RDONLY)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	return nil
}
