package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The gofer is the host's root where the driver is, and no mode keeps root from a file. Root
// inside shall have only the permissions of other users on the host's own files: so they are
// mounted through an overlay, which reads the files below it with the privileges of its
// mounter, the user nobody. Owners and modes stay as they are: gVisor would treat those of
// an id-mapped mount as unmapped, and root that runs the host's set-uid su would lose its uid.

const (
	// veilFile is written to the working directory where something is to be veiled. It contains
	// the reason why something is not: there is no overlayfs, or the directory is itself in
	// overlays. It is empty if everything is.
	veilFile = "veil"

	nobody = 65534
	forAll = 0o004 // readable for all users
)

// veil mounts the host's directory from, as it is visible to the user nobody, read-only, without the mounts
// in it. An overlay needs two directories: an empty one is made in the directory scratch.
func veil(from, to, scratch string) error {
	empty := filepath.Join(scratch, "empty")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return err
	}
	var fds [3]int // the user nobody may not be able to walk there
	for i, dir := range []string{from, empty, to} {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	data := fmt.Sprintf("lowerdir=/proc/self/fd/%d:/proc/self/fd/%d,userxattr", fds[0], fds[1])
	err := apart(func() error {
		if err := switchToNobody(); err != nil {
			return fmt.Errorf("switch to nobody: %w", err)
		}
		return unix.Mount("overlay", fmt.Sprintf("/proc/self/fd/%d", fds[2]), "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, data)
	})
	if err != nil {
		return fmt.Errorf("mount an overlay of %s: %w", from, err)
	}
	return nil
}

// veilAll is veil of a directory and of the mounts in it, as far as possible: procfs,
// a mount below another one and mounts that were removed meanwhile are not, and are left out.
// Mounted files that all users may read are mounted as they are.
func veilAll(from, to, scratch string) error {
	mounts, err := mountsIn(from)
	if err != nil {
		return err
	}
	if err := veil(from, to, scratch); err != nil {
		return err
	}
	for _, m := range mounts {
		fi, err := os.Stat(m)
		at := filepath.Join(to, strings.TrimPrefix(m, from))
		switch {
		case err != nil:
		case fi.IsDir():
			veil(m, at, scratch) //nolint:errcheck // see above
		case fi.Mode().Perm()&forAll != 0:
			bind(m, at) //nolint:errcheck // as above
		}
	}
	return nil
}

// mountsIn returns the paths of mounts in a directory, parents first.
func mountsIn(dir string) (paths []string, err error) {
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(all)) {
		const at = 4
		if fields := strings.Fields(line); len(fields) > at {
			if path := plain.Replace(fields[at]); strings.HasPrefix(path, dir+"/") {
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

// apart calls f on a thread that ends afterwards, regardless of the user that it has become.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The runtime cannot end the main thread. It stays locked here while another
			// goroutine, which cannot be on it, does the work.
			defer runtime.UnlockOSThread()
			done <- apart(f)
			return
		}
		done <- f()
	}()
	return <-done
}

// switchToNobody removes all privileges of this thread except to mount.
func switchToNobody() error {
	if err := unix.Setgroups(nil); err != nil {
		return err
	}
	if err := errors.Join(unix.Setfsgid(nobody), unix.Setfsuid(nobody)); err != nil {
		return err
	}
	// They do not return whether they worked, but the previous id.
	gid, _ := unix.SetfsgidRetGid(-1) //nolint:errcheck // it has no error
	uid, _ := unix.SetfsuidRetUid(-1) //nolint:errcheck // likewise
	if uid != nobody || gid != nobody {
		return fmt.Errorf("user %d does not exist here", nobody)
	}
	const mount = 1 << unix.CAP_SYS_ADMIN
	rights := [2]unix.CapUserData{{Effective: mount, Permitted: mount}}
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &rights[0])
}
