package templates

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// sudoPath is where a tree that has no sudo gets the host's.
const sudoPath = "usr/bin/sudo"

// addSudo copies program into the tree as its sudo, set-uid if hostd is root. A tree that has a
// sudo keeps it; a tree that has no directory for it gets none.
func addSudo(root, program string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, name := range []string{sudoPath, "bin/sudo", "usr/local/bin/sudo"} {
		if _, err := dir.Lstat(name); err == nil {
			return nil
		}
	}
	if err := dir.MkdirAll(path.Dir(sudoPath), 0o755); err != nil {
		return nil
	}
	src, err := os.Open(program)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := dir.OpenFile(sudoPath, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	mode := fs.FileMode(0o755) // regardless of the umask
	if os.Geteuid() == 0 {
		mode |= fs.ModeSetuid
	}
	return errors.Join(err, dst.Close(), dir.Chmod(sudoPath, mode))
}
