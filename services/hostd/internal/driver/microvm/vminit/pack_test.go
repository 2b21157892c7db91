//go:build linux

package vminit

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// packed returns the output of pack for a directory.
func packed(t testing.TB, dir string) []byte {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if err := pack(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree returns a directory with a file of each kind.
func tree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	long := strings.Repeat("n", 255)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("d/deep"), 0o755))
	must(os.MkdirAll(at("etc"), 0o755))
	must(os.WriteFile(at("etc/hosts"), []byte("of this guest"), 0o644))
	must(os.WriteFile(at("d/file"), []byte("text"), 0o600))
	must(os.Link(at("d/file"), at("same")))
	must(os.WriteFile(at("d/\n \xff"+long[:200]), nil, 0o644))
	must(os.WriteFile(at("d/deep/"+long), nil, 0o644))
	must(os.Symlink("file", at("d/link")))
	must(os.Link(at("d/link"), at("link too")))
	must(os.Symlink(strings.Repeat("../", 60)+"nowhere", at("link")))
	must(unix.Mkfifo(at("pipe"), 0o620))
	must(unix.Mknod(at("gone"), unix.S_IFCHR, 0))
	must(os.WriteFile(at("program"), []byte("#!"), 0o755))
	must(os.Chmod(at("program"), 0o755|os.ModeSetuid))
	f, err := os.Create(at("sparse"))
	must(err)
	_, err = f.WriteAt([]byte("middle"), 30<<20)
	must(errors.Join(err, f.Truncate(1<<40), f.Close()))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	t.Cleanup(func() { l.Close() })
	if os.Geteuid() == 0 {
		must(os.Chown(at("d/file"), 1000, 1001))
		must(os.Lchown(at("link"), 7, 8))
		must(unix.Setxattr(at("d/deep"), opaque, []byte("y"), 0))
		must(unix.Setxattr(at("d/deep"), "trusted.overlay.impure", []byte("y"), 0))
		must(unix.Setxattr(at("program"), "security.capability", []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	}
	must(os.Chtimes(at("d/deep"), time.Time{}, time.Unix(-5, 7)))
	must(os.Chtimes(at("d"), time.Time{}, time.Unix(1<<33, 0)))
	must(os.Chmod(at("d"), 0o500))
	t.Cleanup(func() { os.Chmod(at("d"), 0o700) })
	return dir
}

// Another guest unpacks the files that this one packed, except those that each creates
// for itself. A sparse file costs only its data.
func TestUnpackRestoresPackedFiles(t *testing.T) {
	want := packed(t, tree(t))
	if len(want) > 1<<20 {
		t.Errorf("%d bytes were packed", len(want))
	}
	to := t.TempDir()
	if err := unpack(bytes.NewReader(want), to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(to, "d"), 0o700) })
	if got := packed(t, to); !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", names(t, got), names(t, want))
	}
	for _, name := range []string{"socket", "etc/hosts"} {
		if _, err := os.Lstat(filepath.Join(to, name)); err == nil {
			t.Errorf("%s was packed", name)
		}
	}
	var gone unix.Stat_t
	if err := unix.Lstat(filepath.Join(to, "gone"), &gone); err != nil || gone.Mode&unix.S_IFMT != unix.S_IFCHR || gone.Rdev != 0 {
		t.Errorf("whiteout: %o, %d, %v", gone.Mode, gone.Rdev, err)
	}
	b := make([]byte, 6)
	f, err := os.Open(filepath.Join(to, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(b, 30<<20); err != nil || string(b) != "middle" {
		t.Errorf("between holes %q, %v", b, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	value := make([]byte, 1)
	if n, err := unix.Getxattr(filepath.Join(to, "d/deep"), "trusted.overlay.impure", value); err == nil {
		t.Errorf("internal attribute of the overlay was packed: %q", value[:n])
	}
}

func names(t *testing.T, b []byte) (all []string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err != nil {
			return all
		}
		all = append(all, h.Name)
	}
}

// A guest reads what the host sends, reports success or failure, and does not read
// beyond it.
func TestTakeReadsNoFurtherThanTheFiles(t *testing.T) {
	files := packed(t, tree(t))
	for name, sent := range map[string][]byte{"all": files, "truncated": files[:len(files)/2], "nonsense": bytes.Repeat([]byte("no tar"), 300_000)} {
		host, guest := net.Pipe()
		to := t.TempDir()
		t.Cleanup(func() { os.Chmod(filepath.Join(to, "d"), 0o700) })
		took := make(chan error, 1)
		next := make([]byte, 4)
		go func() {
			took <- take(guest, to)
			io.ReadFull(guest, next)
			guest.Close()
		}()
		err := SendFiles(host, bytes.NewReader(sent))
		if own := <-took; (own == nil) != (name == "all") || (err == nil) != (own == nil) || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: guest: %v, host: %v", name, own, err)
		}
		io.WriteString(host, "next")
		host.Read(next[:1]) // the guest has read it then
		if string(next) != "next" {
			t.Errorf("%s: next byte in the guest: %q", name, next)
		}
	}
}

// encodeHeaders returns a tar of headers only.
func encodeHeaders(all ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range all {
		h.Format = tar.FormatPAX
		w.WriteHeader(&h)
	}
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{whole: "1"}, Format: tar.FormatPAX})
	w.Close()
	return b.Bytes()
}

// A malicious stream makes nothing outside of the directory.
func TestUnpackMakesNothingOutside(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"a name with ..":            {Typeflag: tar.TypeDir, Name: "../up"},
		"an absolute name":          {Typeflag: tar.TypeDir, Name: "/up"},
		"an empty name":             {Typeflag: tar.TypeSymlink, Name: ".", Linkname: ".."},
		"a device":                  {Typeflag: tar.TypeChar, Name: "up", Devmajor: 1, Devminor: 3},
		"a disk":                    {Typeflag: tar.TypeBlock, Name: "up"},
		"a link to an outside file": {Typeflag: tar.TypeLink, Name: "up", Linkname: "../secret"},
	} {
		top := t.TempDir()
		dir := filepath.Join(top, "dir")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(top, "secret"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := unpack(bytes.NewReader(encodeHeaders(h)), dir); err == nil {
			t.Errorf("%s: was accepted", name)
		}
		if all, err := os.ReadDir(top); err != nil || len(all) != 2 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// A name below a FIFO is an error; unpack does not block until a process opens the
// FIFO.
func TestUnpackDoesNotBlockOnAFIFO(t *testing.T) {
	dir := t.TempDir()
	below := encodeHeaders(tar.Header{Typeflag: tar.TypeFifo, Name: "f"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "f/x", Linkname: "y"})
	if err := unpack(bytes.NewReader(below), dir); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("got %v", err)
	}
}

// FuzzUnpack checks that no stream makes anything outside of the directory.
func FuzzUnpack(f *testing.F) {
	f.Add(packed(f, tree(f)))
	f.Add(encodeHeaders(tar.Header{Typeflag: tar.TypeDir, Name: "../up"}))
	f.Add(encodeHeaders(tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: ".."}))
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "dir")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		unpack(bytes.NewReader(b), dir)
		if all, err := os.ReadDir(top); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
		filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				os.Chmod(p, 0o700)
			}
			return nil
		})
	})
}

// The sender does not wait for a host that has ended, so that the sandbox resumes.
func TestSendFailsWhenTheHostHasEnded(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd, err := unix.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error)
	go func() {
		_, err := timeoutPort(fd).Write(make([]byte, 1<<20))
		sent <- err
	}()
	io.ReadFull(r, make([]byte, 100<<10))
	r.Close()
	if err := <-sent; err == nil {
		t.Error("everything was written")
	}
}
