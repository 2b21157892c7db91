//go:build linux

package files

import (
	"io"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// moveIntoPlace moves complete content from a temporary name to its path. Normally it renames:
// readers see the old content or the new one. A file that has other names, or that
// another process has open, is overwritten instead: its inode stays, so that hard links,
// `tail -f` and bind mounts see the new content. If that fails, the rename follows.
func (o *op) moveIntoPlace(at *target, name string) error {
	var old unix.Stat_t
	if unix.Fstatat(at.dir, at.name, &old, unix.AT_SYMLINK_NOFOLLOW) == nil && old.Mode&unix.S_IFMT == unix.S_IFREG &&
		(old.Nlink > 1 || o.cfg.Procs && openElsewhere(&old)) && o.overwrite(at, name, &old) == nil {
		return unix.Unlinkat(at.dir, name, 0)
	}
	return unix.Renameat(at.dir, name, at.dir, at.name)
}

// putInPlace is put for a file in a directory in which no other can be created. Readers may see
// a part of the new content.
func (at *target) putInPlace(o *op, fill func(*os.File) error) error {
	fd, err := openAt(at.dir, at.name, unix.O_WRONLY|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), at.name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := regular(o.path, &st); err != nil {
		return err
	}
	if err := fill(f); err != nil {
		return err
	}
	return o.finish(fd, at)
}

// overwrite copies the content under a temporary name into the old file. Owner, mode and
// metadata are set first, so that content is never visible with the old ones.
func (o *op) overwrite(at *target, name string, old *unix.Stat_t) error {
	from, err := openAt(at.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(from), name)
	defer in.Close()
	fd, err := openAt(at.dir, at.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), at.name)
	defer out.Close()
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return err
	case st.Ino != old.Ino || st.Dev != old.Dev:
		return unix.ESTALE // another file has the name by now
	}
	if err := o.setAttributes(fd, at, old); err != nil {
		return err
	}
	if err := out.Truncate(0); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, copyBuffer))
	return err
}

// setAttributes is finish for a file that is overwritten.
func (o *op) setAttributes(fd int, at *target, old *unix.Stat_t) error {
	for key := range readMeta(procPath(fd)) {
		if _, keep := o.req.Meta[key]; keep {
			continue
		}
		if err := unix.Fremovexattr(fd, metaPrefix+key); err != nil {
			return err
		}
	}
	if err := writeMeta(fd, o.req.Meta); err != nil {
		return err
	}
	if o.give {
		if err := unix.Fchown(fd, o.who.UID, o.who.GID); err != nil {
			return err
		}
	}
	if old.Mode&0o7777 == at.mode {
		return nil
	}
	return unix.Fchmod(fd, at.mode)
}

// openElsewhere reports whether another process in /proc has a file open. Processes that
// cannot be inspected do not count.
func openElsewhere(file *unix.Stat_t) bool {
	found := make(chan bool)
	go func() {
		// The ids of a thread are its own. If they cannot be restored, the thread ends.
		runtime.LockOSThread()
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		found <- scan(file)
		if os.Geteuid() != 0 || setFSIDs(0, uint32(os.Getegid())) {
			runtime.UnlockOSThread()
		}
		if err == nil { // a change of ids clears it for the whole process
			unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(dumpable), 0, 0, 0) //nolint:errcheck // only core dumps would be missing
		}
	}()
	return <-found
}

// setFSIDs sets the ids of this thread by which the kernel decides about access to processes: those
// of the file system, or the real ones in gVisor, which has no others.
func setFSIDs(uid, gid uint32) bool {
	const keep = ^uintptr(0)
	if unix.Setfsgid(int(gid)) == nil && unix.Setfsuid(int(uid)) == nil {
		now, _ := unix.SetfsuidRetUid(-1)
		group, _ := unix.SetfsgidRetGid(-1)
		return now == int(uid) && group == int(gid)
	}
	_, _, err := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), keep, keep)
	if err == 0 {
		_, _, err = unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), keep, keep)
	}
	return err == 0
}

// scan searches the open files of all processes but this one. The kernel shows a process's
// files to its own user and to CAP_SYS_PTRACE, which sandboxes lack: the thread
// takes the ids of each process's owner.
func scan(file *unix.Stat_t) bool {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	self := os.Getpid()
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err != nil || pid == self {
			continue
		}
		var owner unix.Stat_t
		if unix.Fstatat(int(proc.Fd()), name, &owner, 0) != nil {
			continue
		}
		if os.Geteuid() == 0 && !setFSIDs(owner.Uid, owner.Gid) {
			continue
		}
		if has(int(proc.Fd()), name+"/fd", file) {
			return true
		}
	}
	return false
}

// has reports whether a directory of open files, a path below proc, contains a file.
func has(proc int, path string, file *unix.Stat_t) bool {
	fd, err := openAt(proc, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	open, _ := dir.Readdirnames(-1)
	for _, n := range open {
		var st unix.Stat_t
		if unix.Fstatat(fd, n, &st, 0) == nil && st.Ino == file.Ino && st.Dev == file.Dev {
			return true
		}
	}
	return false
}
