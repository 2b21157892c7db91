//go:build unix

package regular_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/regular"
)

func TestReadReturnsTheContentAndOneByteMoreThanTheLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("0123456789"), 0o640); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]string{0: "0", 4: "01234", 9: "0123456789", 10: "0123456789", 1000: "0123456789"} {
		got, fi, err := regular.Read(path, most)
		if err != nil || string(got) != want {
			t.Errorf("Read of at most %d = %q, %v; want %q", most, got, err, want)
		} else if fi.Size() != 10 || fi.Mode() != 0o640 {
			t.Errorf("size %d, mode %s", fi.Size(), fi.Mode())
		}
	}
}

// TestReadRejectsOtherFiles: processes of the sandbox may put anything in a file's place. A FIFO
// without a writer would block, and a device never ends.
func TestReadRejectsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, socket, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o666), os.Symlink(fifo, link)); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, tt := range []struct {
		name, path string
		want       error // nil: any, as systems differ
	}{
		{"a FIFO without a writer", fifo, fs.ErrInvalid},
		{"a link to it", link, fs.ErrInvalid},
		{"a directory", dir, fs.ErrInvalid},
		{"a device", os.DevNull, fs.ErrInvalid},
		{"a socket", socket, nil},
		{"no file", filepath.Join(dir, "none"), fs.ErrNotExist},
	} {
		if b, fi, err := regular.Read(tt.path, 10); err == nil || tt.want != nil && !errors.Is(err, tt.want) || b != nil || fi != nil {
			t.Errorf("%s: %q, %v, %v; want %v", tt.name, b, fi, err, tt.want)
		}
	}
}
