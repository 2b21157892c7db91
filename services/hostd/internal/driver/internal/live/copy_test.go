//go:build linux

package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// odd makes a tree of everything that a sandbox can leave.
func odd(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "odd")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "a/file"), []byte("text"), 0o640))
	must(os.Link(filepath.Join(dir, "a/file"), filepath.Join(dir, "a/b/same")))
	must(os.WriteFile(filepath.Join(dir, "a/shut"), []byte("secret"), 0o600))
	must(os.Chmod(filepath.Join(dir, "a/shut"), 0))
	must(os.WriteFile(filepath.Join(dir, "setuid"), nil, 0o755))
	must(os.Chmod(filepath.Join(dir, "setuid"), 0o755|os.ModeSetuid))
	must(os.Symlink("/etc/shadow", filepath.Join(dir, "link")))
	must(os.Symlink("..", filepath.Join(dir, "a/up")))
	must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o622))
	must(unix.Mknod(filepath.Join(dir, "whiteout"), unix.S_IFCHR, 0))
	must(os.WriteFile(filepath.Join(dir, " \n\xff"), []byte("name"), 0o600))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	must(err)
	must(sparse.Truncate(1 << 40))
	_, err = sparse.WriteAt([]byte("middle"), 1<<39)
	must(err)
	must(sparse.Close())
	for name, value := range map[string]string{"user.mine": "1", "user.overlay.opaque": "y", "user.overlay.redirect": "/a"} {
		must(unix.Setxattr(filepath.Join(dir, "a"), name, []byte(value), 0))
	}
	must(os.Chmod(filepath.Join(dir, "a/b/c"), 0))
	must(os.Chmod(filepath.Join(dir, "a/b"), 0o500))
	must(unix.UtimesNano(filepath.Join(dir, "a/b"), []unix.Timespec{{Sec: 1}, {Sec: 2, Nsec: 3}}))
	t.Cleanup(func() { unix.Chmod(filepath.Join(dir, "a/b"), 0o700) })
	return dir
}

// describe returns a description of every entry of a tree.
func describe(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	inodes := map[uint64]string{}
	var walk func(string)
	walk = func(rel string) {
		path := filepath.Join(root, rel)
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%q %o %d:%d %d", rel, st.Mode, st.Uid, st.Gid, st.Rdev)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			line += fmt.Sprintf(" %d", st.Size)
		}
		if first, ok := inodes[st.Ino]; ok {
			line += " is " + first
		}
		inodes[st.Ino] = rel
		target, _ := os.Readlink(path)
		line += " " + target + " " + fmt.Sprint(st.Mtim)
		names := make([]byte, 1024)
		if n, err := unix.Llistxattr(path, names); err == nil {
			line += fmt.Sprintf(" %q", strings.ReplaceAll(string(names[:n]), "user.overlay.redirect\x00", ""))
		}
		all = append(all, line)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR && (st.Mode&0o500 == 0o500 || os.Geteuid() == 0) {
			entries, err := os.ReadDir(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				walk(filepath.Join(rel, e.Name()))
			}
		}
	}
	walk(".")
	slices.Sort(all)
	return all
}

func TestCopyTree(t *testing.T) {
	from := odd(t)
	before := describe(t, from)
	to := filepath.Join(t.TempDir(), "copy")
	if err := CopyTree(t.Context(), from, to, Copy{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(filepath.Dir(to), "copy") })
	if got := describe(t, to); !slices.Equal(got, before) {
		t.Errorf("copy:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
	}
	if after := describe(t, from); !slices.Equal(after, before) {
		t.Errorf("original after the copy:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	f, err := os.Open(filepath.Join(to, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 8)
	if _, err := f.ReadAt(b, 1<<39-1); err != nil || string(b) != "\x00middle\x00" {
		t.Errorf("in the sparse file: %q, %v", b, err)
	}
	if used, err := DiskUsage(t.Context(), to, nil); err != nil || used > 1<<20 {
		t.Errorf("%d bytes used, %v; want holes kept", used, err)
	}
}

func TestCopyTreeByLinks(t *testing.T) {
	from := odd(t)
	dir, err := os.MkdirTemp(filepath.Dir(from), "to") // on the same file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(dir, "copy") })
	before := describe(t, from)
	if err := CopyTree(t.Context(), from, filepath.Join(dir, "copy"), Copy{Link: true}); err != nil {
		t.Fatal(err)
	}
	if got := describe(t, filepath.Join(dir, "copy")); !slices.Equal(got, before) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
	}
	var a, b unix.Stat_t
	if unix.Stat(filepath.Join(from, "sparse"), &a) != nil || unix.Stat(filepath.Join(dir, "copy/sparse"), &b) != nil || a.Ino != b.Ino {
		t.Errorf("inodes %d and %d, want a hard link", a.Ino, b.Ino)
	}
}

func TestCopyTreeMovesOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	const base = 1 << 28
	from := t.TempDir()
	want := map[string]uint32{"root": 0, "user": 1000, "host": nobody}
	for name, id := range map[string]int{"root": base, "user": base + 1000, "host": 5} {
		path := filepath.Join(from, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(path, id, id); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err := CopyTree(t.Context(), from, to, Copy{Base: base}); err != nil {
		t.Fatal(err)
	}
	for name, id := range want {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(to, name), &st); err != nil || st.Uid != id || st.Gid != id {
			t.Errorf("%s belongs to %d:%d, want %d (%v)", name, st.Uid, st.Gid, id, err)
		}
	}
}

func TestCopyTreeOfGreatDepth(t *testing.T) {
	const depth = 3000 // longer than a path can be, and than there are descriptors
	from := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	err = OnThread(from, func() error {
		for range depth {
			if err := unix.Mkdir("deeper", 0o700); err != nil {
				return err
			}
			if err := unix.Chdir("deeper"); err != nil {
				return err
			}
		}
		return os.WriteFile("bottom", []byte("x"), 0o600)
	})
	if err != nil {
		t.Fatal(here, err)
	}
	dir := t.TempDir()
	t.Cleanup(func() { Remove(from, "deeper"); Remove(dir, "copy") })
	if err := CopyTree(t.Context(), from, filepath.Join(dir, "copy"), Copy{}); err != nil {
		t.Fatal(err)
	}
	was, err := DiskUsage(t.Context(), from, nil)
	if err != nil || was < depth*4096 {
		t.Fatalf("%d bytes, %v", was, err)
	}
	if is, err := DiskUsage(t.Context(), filepath.Join(dir, "copy"), nil); err != nil || is != was {
		t.Errorf("the copy has %d bytes, %v; want %d", is, err, was)
	}
}

// A tenant can make millions of directories in one, and of files with two names.
func TestCopyTreeBoundsItsMemory(t *testing.T) {
	const most = 20
	for _, tt := range []struct {
		name string
		made func(dir, name string) error
		ok   bool
	}{
		{"directories", func(dir, name string) error { return os.Mkdir(filepath.Join(dir, name), 0o700) }, false},
		{"directories in several", func(dir, name string) error { return os.MkdirAll(filepath.Join(dir, name[:1], name), 0o700) }, true},
		{"files with two names", func(dir, name string) error {
			one := filepath.Join(dir, name)
			return errors.Join(os.WriteFile(one, nil, 0o600), os.Link(one, one+" too"))
		}, false},
		{"files", func(dir, name string) error { return os.WriteFile(filepath.Join(dir, name), nil, 0o600) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from := t.TempDir()
			for i := range most {
				if err := tt.made(from, fmt.Sprintf("%02d", i)); err != nil {
					t.Fatal(err)
				}
			}
			c := copier{walker: walker{remembered: maxRemembered - most*rememberedEach}, links: map[devIno]string{}}
			if err := c.enter(unix.AT_FDCWD, from); err != nil {
				t.Fatal(err)
			}
			defer func() { c.dir.Close() }()
			var err error
			if c.to, err = os.Open(t.TempDir()); err != nil {
				t.Fatal(err)
			}
			defer func() { c.to.Close() }()
			if err := c.tree(t.Context()); tt.ok != (err == nil) || err != nil && !kind.Is(err, kind.Exhausted) {
				t.Errorf("copied beyond the limit: %v", err)
			}
		})
	}
}

func TestCopyTreeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CopyTree(ctx, odd(t), filepath.Join(t.TempDir(), "copy"), Copy{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
