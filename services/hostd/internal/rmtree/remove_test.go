package rmtree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes levels of directories below dir, each with an unreadable sibling.
func deep(dir string, levels int) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range levels {
		if err == nil {
			err = errors.Join(unix.Mkdirat(fd, "d", 0o700), unix.Mkdirat(fd, "e", 0))
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		unix.Close(fd)
		fd = next
	}
	return errors.Join(err, unix.Close(fd))
}

// withFewDescriptors calls do with a descriptor limit below the depth of the tree.
func withFewDescriptors(t *testing.T, do func() error) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	less := old
	less.Cur = 128
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &less); err != nil {
		t.Fatal(err)
	}
	err := do()
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)); err != nil {
		t.Fatal(err)
	}
}

func TestHostileTree(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(dir, "tree")
	for _, d := range []string{"many", "moved-1/x"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		if err := unix.Mkfifo(fmt.Sprintf("%s/many/%d", tree, i), 0); err != nil {
			t.Fatal(err)
		}
	}
	// Deeper than the descriptor limit and the path length limit, and without permissions.
	if err := deep(tree, 3000); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"many", "d/d", "d"} {
		if err := os.Chmod(filepath.Join(tree, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	withFewDescriptors(t, func() error { return errors.Join(Tree(tree), Tree(filepath.Join(dir, "missing"))) })
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
	if err := Tree(filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestDirectoryReplacedByALinkIsNotFollowed: another process with a descriptor of the
// parent may replace a directory between reading and moving it.
func TestDirectoryReplacedByALinkIsNotFollowed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(other, filepath.Join(dir, "link")), os.Chmod(other, 0o755)); err != nil {
		t.Fatal(err)
	}
	parent, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	r := remover{top: parent}
	for _, f := range []func() error{
		func() error { return Chmod(int(parent.Fd()), "link", 0o700) },
		func() error { return r.removeDir(parent, "link") },
		func() error { return r.moveUp(parent, "link") },
	} {
		err := f()
		if fi, statErr := os.Stat(other); statErr != nil || fi.Mode().Perm() != 0o755 {
			t.Errorf("the link's target is %v, %v: %v", fi, statErr, err)
		}
	}
}
