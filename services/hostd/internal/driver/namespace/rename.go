//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// nameFiles returns the files of a sandbox that contain its host name.
func nameFiles(hostname string) []nsinit.File {
	return []nsinit.File{{Name: "etc/hostname", Body: hostname + "\n"}, {Name: "etc/hosts", Body: hosts(hostname)}}
}

// rename changes the host name of the sandbox whose first process is pid. It requires root.
func rename(pid int, hostname string) error {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if err := live.OnThread("/", func() error { return setHostname(proc, hostname) }); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	root, err := unix.Open(filepath.Join(proc, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "root of sandbox", Err: err}
	}
	defer unix.Close(root)
	for _, f := range nameFiles(hostname) {
		if err := overwrite(root, f.Name, f.Body); err != nil {
			return &os.PathError{Op: "write", Path: f.Name, Err: err}
		}
	}
	return nil
}

// setHostname sets the host name of the process in proc. This thread must end afterwards: it
// stays in the sandbox's namespace.
func setHostname(proc, hostname string) error {
	uts, err := os.Open(filepath.Join(proc, "ns", "uts"))
	if err != nil {
		return err
	}
	defer uts.Close()
	if err := unix.Setns(int(uts.Fd()), unix.CLONE_NEWUTS); err != nil {
		return os.NewSyscallError("setns", err)
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(hostname)))
}

// overwrite replaces the contents of a regular file below root. The template's own programs may
// have run there: a link is not followed, and a pipe does not block.
func overwrite(root int, name, body string) error {
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	default:
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteString(body)
		}
	}
	return errors.Join(err, f.Close())
}
