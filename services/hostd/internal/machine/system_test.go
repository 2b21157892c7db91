package machine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Two machines of one system have the same files only if the same packages are installed, by
// whatever package manager.
func TestSystemsWithOtherPackagesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, file := range []string{
		"var/lib/dpkg/status", "lib/apk/db/installed", "var/lib/rpm/rpmdb.sqlite", "var/lib/pacman/local/bash-5.2/desc", "var/lib/pacman/local/bash-5.3/desc",
	} {
		root := t.TempDir()
		path := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file), 0o644)); err != nil {
			t.Fatal(err)
		}
		of := systemOf(root)
		if other, ok := seen[of]; ok || of == systemOf(t.TempDir()) || of != systemOf(root) {
			t.Errorf("%s: %s, same as for %q", file, of, other)
		}
		seen[of] = file
	}
}
