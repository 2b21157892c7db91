//go:build linux

package layers

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// as gives the contents of dir to an ordinary user and calls do as that user, if the test
// runs as root.
func as(t *testing.T, dir string, do func()) {
	t.Helper()
	const user = 1000
	if os.Geteuid() != 0 {
		do()
		return
	}
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, user, user))
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // permanently: the thread ends, and no other thread has the user's uid
		if err := unix.Setfsuid(user); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

// Files that a sandbox made inaccessible do not prevent sandboxes from its snapshot.
func TestOwnersOfInaccessibleFiles(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "snapshot")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	layer, err := Begin(t.Context(), "", dir, true)
	if err != nil {
		t.Fatal(err)
	}
	owners, err := layer.Owners()
	if err != nil {
		t.Fatal(err)
	}
	shut := filepath.Join(layer.Dir, "upper", "shut")
	for _, path := range []string{"open", "shut"} {
		at := filepath.Join(layer.Dir, "upper", path)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "file"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		owners.Add(Owner{7, 7, path})
		owners.Add(Owner{7, 7, path + "/file"})
	}
	if err := errors.Join(owners.Close(), layer.Commit(), os.Chmod(shut, 0)); err != nil {
		t.Fatal(err)
	}
	as(t, top, func() {
		m, err := Read(dir)
		if err != nil {
			t.Error(err)
			return
		}
		all, ok, err := Under(dir, m).Owners(0)
		if want := []Owner{{7, 7, "open"}, {7, 7, "open/file"}, {7, 7, "shut"}}; err != nil || !ok || !slices.Equal(all, want) {
			t.Errorf("owners %v, %v, %v; want %v", all, ok, err, want)
		}
	})
	if err := os.Chmod(shut, 0o700); err != nil { // so that it can be removed
		t.Error(err)
	}
}
