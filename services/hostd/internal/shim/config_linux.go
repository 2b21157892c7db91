package shim

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
)

// hasConfig reports whether the driver mounted memory for a conversation's configuration.
func hasConfig() bool {
	var fs unix.Statfs_t
	return unix.Statfs(bootstrap.Directory, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// ownConfig gives that directory to the user of processes that name none.
func ownConfig(known *users.Database) error {
	if os.Geteuid() != 0 || !hasConfig() {
		return nil
	}
	user, err := known.Lookup("")
	if err != nil {
		return err
	}
	return os.Chown(bootstrap.Directory, user.UID, user.GID)
}

// clearConfig removes the configuration: a snapshot of memory contains it, and it is not that of the
// sandbox that is made from one.
func clearConfig() error {
	if !hasConfig() {
		return nil
	}
	entries, err := os.ReadDir(bootstrap.Directory)
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(bootstrap.Directory, e.Name())); err != nil {
			return err
		}
	}
	return err
}
