//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// unpack sends a tar, or the beginning of one.
func (r *rig) unpack(t testing.TB, to string, content []byte) error {
	t.Helper()
	return r.exchange(t, file.Request{Op: file.OpUnpack, Path: to}, func(c *net.UnixConn) {
		c.Write(content)
		c.CloseWrite()
		c.Read(make([]byte, 1))
	})
}

func tarOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 2
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write([]byte("hi"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	r := newRig(t)
	r.put(t, "/srv/old", "old content")
	content := tarOf(t,
		tar.Header{Name: ".", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o750},
		tar.Header{Name: "dir/run", Mode: 0o4755},
		tar.Header{Name: "old", Mode: 0o600},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "same", Typeflag: tar.TypeLink, Linkname: "dir/run"},
		tar.Header{Name: "made/for/it", Mode: 0o644},
	)
	for range 2 { // the second time everything exists
		if err := r.unpack(t, "/srv", content); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(r.root, "srv")
	for name, want := range map[string]string{
		"dir": "drwxr-x---", "dir/run": "-rwxr-xr-x", "old": "-rw-------", "link": "Lrwxrwxrwx", "same": "-rwxr-xr-x", "made/for/it": "-rw-r--r--",
	} {
		fi, err := os.Lstat(filepath.Join(at, name))
		if err != nil || fi.Mode().String() != want {
			t.Errorf("%s: %v, %v; want %s", name, fi.Mode(), err, want)
		}
	}
	for _, name := range []string{"dir/run", "old", "same", "made/for/it"} {
		if b, err := os.ReadFile(filepath.Join(at, name)); string(b) != "hi" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(at, "link")); to != "/etc/passwd" {
		t.Errorf("link: %q, %v", to, err)
	}
}

// Names with .. end in the directory; names through a link, in the root.
func TestUnpackStaysInTheRoot(t *testing.T) {
	r := newRig(t)
	outside := filepath.Join(filepath.Dir(r.root), filepath.Base(r.root)+"-outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outside) })
	err := r.unpack(t, "/srv", tarOf(t,
		tar.Header{Name: "../../" + filepath.Base(outside) + "/climbed"},
		tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "out/linked"},
		tar.Header{Name: "stolen", Typeflag: tar.TypeLink, Linkname: "out/../../../etc/passwd"},
	))
	if err == nil {
		t.Error("a link to a missing file was made")
	}
	if left, err := os.ReadDir(outside); len(left) > 0 || err != nil {
		t.Errorf("outside: %v, %v", left, err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	r := newRig(t)
	good := tarOf(t, tar.Header{Name: "a"}, tar.Header{Name: "b"})
	for name, b := range map[string][]byte{
		"a device":                           tarOf(t, tar.Header{Name: "null", Typeflag: tar.TypeChar}),
		"a pipe":                             tarOf(t, tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}),
		"no tar":                             bytes.Repeat([]byte("no tar"), 200),
		"half":                               good[:1100],
		"a file in the place of a directory": tarOf(t, tar.Header{Name: "x/", Typeflag: tar.TypeDir}, tar.Header{Name: "x"}),
	} {
		if err := r.unpack(t, "/srv/"+name, b); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, tar.Header{Name: "a/b"}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}))
	f.Add(tarOf(f, tar.Header{Name: "../x"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newRig(t)
		r.unpack(t, "/srv", b)
		for _, name := range []string{"x", "a"} {
			if _, err := os.Lstat(filepath.Join(filepath.Dir(r.root), name)); err == nil {
				t.Errorf("%s was made outside", name)
			}
		}
	})
}
