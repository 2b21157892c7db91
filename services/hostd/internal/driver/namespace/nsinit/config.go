//go:build linux

package nsinit

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/bootstrap"
)

// ConfigOptions are the options of the file system in memory for a conversation's configuration.
const ConfigOptions = "mode=0700,size=16m"

// MountConfig mounts memory at bootstrap.Directory in the root of this process, which the shim gives to its user. Files that a
// template has there stay visible instead.
func MountConfig() error {
	err := os.MkdirAll(bootstrap.Directory, rootDir)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return nil // something else is in its place
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(bootstrap.Directory)
	if err != nil || len(entries) > 0 {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", bootstrap.Directory, "tmpfs", flags, ConfigOptions); err != nil {
		return &os.PathError{Op: "mount", Path: bootstrap.Directory, Err: err}
	}
	return nil
}
