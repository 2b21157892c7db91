package templates

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

// keep implements Sink with the store.
func (s *store) keep(_ context.Context, sum template.Sum, packed []byte) error {
	return os.WriteFile(filepath.Join(s.dir, string(sum)), packed, 0o644)
}

// layerTree fills a directory with everything that an overlay's layer can contain.
func layerTree(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	must(os.MkdirAll(in("layers/0/over/home"), 0o755))
	must(os.WriteFile(in("layers/0/over/home/suid"), []byte("x"), 0o600))
	must(os.Chmod(in("layers/0/over/home/suid"), fs.ModeSetuid|0o711))
	must(os.WriteFile(in("layers/0/over/shut"), []byte("shut"), 0o600))
	must(os.Chmod(in("layers/0/over/shut"), 0))
	must(os.Link(in("layers/0/over/home/suid"), in("layers/0/over/other")))
	must(os.Symlink("/etc/passwd", in("layers/0/over/link")))
	must(unix.Mkfifo(in("layers/0/over/pipe"), 0o640))
	must(unix.Mknod(in("layers/0/over/gone"), unix.S_IFCHR, 0))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: in("s"), Net: "unix"})
	must(err)
	l.SetUnlinkOnClose(false)
	must(l.Close())
	must(os.Mkdir(in("layers/0/over/opaque"), 0o700))
	must(unix.Setxattr(in("layers/0/over/opaque"), "user.overlay.opaque", []byte("y"), 0))
	must(unix.Setxattr(in("layers/0/over/home/suid"), "user.note", []byte("n"), 0))
	must(unix.Setxattr(in("layers/0/over/home/suid"), "user.bytes", []byte("\x00=\n\x00\xff"), 0))
	must(os.WriteFile(in("layers/0/over/opaque/new"), []byte("new"), 0o644))
	f, err := os.Create(in("sparse"))
	must(err)
	_, err = f.WriteAt([]byte("end"), 3<<20)
	must(err)
	must(f.Close())
	must(os.WriteFile(in("z.json"), []byte("{}"), 0o600))
	must(os.Chtimes(in("z.json"), time.Unix(5, 7), time.Unix(5, 7)))
	must(os.Chmod(in("layers/0/over/opaque"), 0o311))
	if os.Geteuid() == 0 {
		must(os.Chown(in("layers/0/over/home"), 1000, 1001))
		must(os.Lchown(in("layers/0/over/link"), 1000, 1000))
	}
	must(os.Chtimes(in("layers"), time.Unix(9, 0), time.Unix(9, 0)))
}

// describe describes everything that must be the same in a tree and its copy.
func describe(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil && !os.IsPermission(err) {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		text := fmt.Sprintf("mode %o of %d:%d, links %d, device %d", st.Mode, st.Uid, st.Gid, st.Nlink, st.Rdev)
		if st.Mode&unix.S_IFMT != unix.S_IFLNK && name != "." {
			text += fmt.Sprintf(", time %d.%d", st.Mtim.Sec, st.Mtim.Nsec)
		}
		for _, attr := range []string{"user.overlay.opaque", "user.note", "user.bytes"} {
			value := make([]byte, 10)
			if n, err := unix.Lgetxattr(p, attr, value); err == nil {
				text += ", " + attr + " " + string(value[:n])
			}
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			text += fmt.Sprintf(", %d bytes %s, err %v", st.Size, template.SumOf(b), err != nil)
		case unix.S_IFLNK:
			to, _ := os.Readlink(p)
			text += " to " + to
		}
		out[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pack(t *testing.T, s *store, dir string) []byte {
	t.Helper()
	raw, err := Pack(t.Context(), dir, template.MaxTar, s.keep)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCopyEqualsTheTree(t *testing.T) {
	dir, s := t.TempDir(), newStore(t)
	t.Cleanup(func() { rmtree.Tree(filepath.Join(dir, "layers")) })
	layerTree(t, dir)
	before := describe(t, dir)
	raw := pack(t, s, dir)
	if after := describe(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("packing changed the tree:\n%v\n%v", before, after)
	}
	if again := pack(t, s, dir); !bytes.Equal(again, raw) {
		t.Error("the same tree has another manifest")
	}
	if size, err := Measure(t.Context(), dir); err != nil || size < 3<<20 || size > 4<<20 {
		t.Errorf("measured %d, %v", size, err)
	}
	c, err := Open(Config{Dir: filepath.Join(t.TempDir(), "c"), Copies: s})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rmtree.Tree(c.cfg.Dir) })
	have := describe(t, got.Root)
	for name, want := range before {
		if have[name] != want {
			t.Errorf("%s: %s, want %s", name, have[name], want)
		}
	}
	if len(have) != len(before) {
		t.Errorf("%d entries, want %d", len(have), len(before))
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(got.Root, "sparse"), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("want holes kept: %d bytes on the disk, %v", st.Blocks*512, err)
	}
	if again := pack(t, s, got.Root); !bytes.Equal(again, raw) {
		t.Error("the copy of a copy differs")
	}
	got.Release()
	c.cfg.Max = 1
	c.evict(space{})
	if left, _ := filepath.Glob(filepath.Join(c.cfg.Dir, "*")); len(left) != 1 {
		t.Errorf("remaining after eviction: %v", left)
	}
}

// A chain of snapshots stores its common parts once.
func TestCopiesShareCommonParts(t *testing.T) {
	dir, s := t.TempDir(), newStore(t)
	if err := os.MkdirAll(filepath.Join(dir, "layers/0"), 0o755); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 3*template.PartSize)
	rand.Read(big)
	if err := os.WriteFile(filepath.Join(dir, "layers/0/big"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "namespace.json"), []byte("1"), 0o600)
	if err := os.Chtimes(filepath.Join(dir, "layers"), time.Unix(1, 1), time.Unix(1, 1)); err != nil {
		t.Fatal(err)
	}
	pack(t, s, dir)
	before, _ := os.ReadDir(s.dir)
	os.MkdirAll(filepath.Join(dir, "layers/1"), 0o755)
	os.WriteFile(filepath.Join(dir, "layers/1/small"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(dir, "namespace.json"), []byte("2"), 0o600)
	pack(t, s, dir)
	after, _ := os.ReadDir(s.dir)
	t.Logf("%d parts, then %d", len(before), len(after))
	if len(before) != 4 || len(after)-len(before) > 2 {
		t.Errorf("of %d parts %d are new", len(after), len(after)-len(before))
	}
}

func TestPackRefusesLargeTrees(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil { // a hole of a TiB
		t.Fatal(err)
	}
	f.Close()
	none := func(context.Context, template.Sum, []byte) error { t.Error("a part was stored"); return nil }
	if _, err := Pack(t.Context(), dir, 1<<30, none); !kind.Is(err, kind.Invalid) || !strings.Contains(kind.Message(err), "1024 MiB") {
		t.Errorf("%v", err)
	}
	if _, err := Measure(t.Context(), dir); !kind.Is(err, kind.Invalid) {
		t.Errorf("measured: %v", err)
	}
}

// The depth of directories is limited, on both sides: each path costs as many calls
// as it is deep, so that ten thousand of them took a host minutes.
func TestDeepTreesAreRefused(t *testing.T) {
	dir, s := t.TempDir(), newStore(t)
	deep := func(levels int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", levels)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	deep(maxDepth - 1) // and dir itself
	raw, err := Pack(t.Context(), dir, template.MaxTar, s.keep)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{Dir: filepath.Join(t.TempDir(), "c"), Copies: s})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), raw); err != nil {
		t.Error(err)
	}
	deep(maxDepth)
	if _, err := Pack(t.Context(), dir, template.MaxTar, s.keep); !kind.Is(err, kind.Invalid) {
		t.Errorf("packed: %v", err)
	}
	if _, err := Measure(t.Context(), dir); !kind.Is(err, kind.Invalid) {
		t.Errorf("measured: %v", err)
	}
	raw = s.add(t, entry{strings.Repeat("d/", maxDepth+1) + "f", "", '0', 0o600, 0})
	if _, err := open(t, filepath.Join(t.TempDir(), "c"), s, 0).Get(t.Context(), raw); !kind.Is(err, kind.Invalid) || !strings.Contains(err.Error(), "nested") {
		t.Errorf("unpacked: %v", err)
	}
}

// A tenant can make directories of millions of names, and files with two names of 16 KiB: the
// memory for them is limited, and sibling directories are not in memory at the same time.
func TestPackBoundsMemoryForNames(t *testing.T) {
	const most, name = 3 * batch, "a file of some name"
	tree := func(fill func(dir string, i int) error) string {
		t.Helper()
		top := t.TempDir()
		for i := range most {
			if err := fill(top, i); err != nil {
				t.Fatal(err)
			}
		}
		return top
	}
	file := func(in string, i int) error { return os.WriteFile(filepath.Join(in, fmt.Sprint(name, i)), nil, 0o600) }
	for _, tt := range []struct {
		name string
		dir  string
		ok   bool
	}{
		{"in a directory", tree(file), false},
		{"in several", tree(func(top string, i int) error {
			dir := filepath.Join(top, fmt.Sprint(i%4))
			return errors.Join(os.MkdirAll(dir, 0o700), file(dir, i))
		}), true},
		{"of files with two", tree(func(top string, i int) error {
			dir := filepath.Join(top, fmt.Sprint(i%4))
			one := filepath.Join(dir, fmt.Sprint(name, i))
			return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(one, nil, 0o600), os.Link(one, one+" too"))
		}), false},
	} {
		for _, blind := range []bool{true, false} {
			root, err := os.OpenRoot(tt.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			w := newPacker(t.Context(), template.MaxTar)
			w.blind, w.tar, w.memory = blind, tar.NewWriter(io.Discard), most*nameSize
			if err := w.add(root, "."); tt.ok != (err == nil) || err != nil && !kind.Is(err, kind.Invalid) {
				t.Errorf("names %s: %v", tt.name, err)
			}
		}
	}
}

// Paths and attributes of all directories are in memory until all is unpacked: a tree is
// packed only if it can be unpacked.
func TestPackBoundsMemoryForDirectories(t *testing.T) {
	const most = 20
	top := t.TempDir()
	var entries []entry
	for i := range most {
		name := fmt.Sprint(strings.Repeat("d", 200), i)
		if err := os.Mkdir(filepath.Join(top, name), 0o700); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{name + "/", "", tar.TypeDir, 0o700, 0})
	}
	for limit, want := range map[int]kind.Kind{most * (dirSize + 100): kind.Invalid, maxMemory: 0} {
		root, err := os.OpenRoot(top)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		w := newPacker(t.Context(), template.MaxTar)
		w.blind, w.memory = true, limit+most*(nameSize+202) // and their names
		if err := w.add(root, "."); kind.Of(err) != want {
			t.Errorf("packed with %d bytes: %v", limit, err)
		}
		to, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		f := filler{root: to, files: most, memory: limit}
		err = nil
		for _, e := range entries {
			err = errors.Join(err, f.add(&tar.Header{Name: e.name, Typeflag: e.flag, Mode: e.mode}, nil))
		}
		if kind.Of(err) != want {
			t.Errorf("unpacked with %d bytes: %v", limit, err)
		}
	}
}

// Some file systems permit thousands of attributes of 64 KiB.
func TestPackBoundsAttributes(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range maxAttributes/maxAttribute + 1 {
		if _, err := Pack(t.Context(), dir, template.MaxTar, newStore(t).keep); err != nil {
			t.Errorf("with %d: %v", i, err)
		}
		if err := unix.Setxattr(filepath.Join(dir, "f"), fmt.Sprint("user.", i), make([]byte, maxAttribute), 0); err != nil {
			t.Skipf("attribute %d: %v", i, err)
		}
	}
	if _, err := Pack(t.Context(), dir, template.MaxTar, newStore(t).keep); !kind.Is(err, kind.Invalid) {
		t.Errorf("with all: %v", err)
	}
}

// Packing and filling keep only a few parts in memory, for a tree of any size.
func TestCopyIsStreamed(t *testing.T) {
	dir, s := t.TempDir(), newStore(t)
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 256 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	f.Close()
	most := uint64(0)
	see := func() {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}
	raw, err := Pack(t.Context(), dir, size, func(ctx context.Context, sum template.Sum, packed []byte) error {
		see()
		return s.keep(ctx, sum, packed)
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{Dir: filepath.Join(t.TempDir(), "c"), Copies: s})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), raw)
	see()
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(got.Root, "f")); err != nil || fi.Size() != size || most > size/2 {
		t.Errorf("%v, %v; %d MiB of memory", fi, err, most>>20)
	}
	m, _, err := template.Decode(raw)
	if err != nil || len(slices.Compact(m.Parts)) > 4 {
		t.Errorf("zeros take %d parts, %v", len(slices.Compact(m.Parts)), err)
	}
}

// An untrusted tar may not contain devices; a copy of a host's files may.
func TestOnlyCopiesMayContainDevices(t *testing.T) {
	s := newStore(t)
	raw := s.add(t, entry{"dev", "", '3', 0o600, 0})
	c := open(t, filepath.Join(t.TempDir(), "c"), s, 0)
	if _, err := c.Get(t.Context(), raw); !kind.Is(err, kind.Invalid) {
		t.Errorf("a device in a template: %v", err)
	}
}
