//go:build linux

package usage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fill makes files of one block each.
func fill(t *testing.T, dir string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), make([]byte, 4096), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory with many files is scanned seldom, and a scan is limited to some number of them.
func TestScanIsBounded(t *testing.T) {
	dir := t.TempDir()
	u := Disk{most: 100, step: 10}
	scan := func() uint64 {
		t.Helper()
		n, files, err := u.Of(t.Context(), dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if blocks := n / 4096; files > blocks+1 || files+8 < blocks { // a directory can take more than one; of the last file of a scan only its existence counts
			t.Errorf("%d files take %d blocks", files, blocks)
		}
		return n
	}
	fill(t, dir, 0, 4)
	few := scan()
	fill(t, dir, 4, 53)
	all := scan()
	if few < 4*4096 || all < 53*4096 {
		t.Errorf("4 files take %d bytes, 53 take %d", few, all)
	}
	fill(t, dir, 53, 60) // with the directories it scanned 60, and so skips 6 scans
	for i := range 6 {
		if n := scan(); n != all {
			t.Errorf("scan %d: %d bytes, not %d", i, n, all)
		}
	}
	if n := scan(); n < 60*4096 {
		t.Errorf("after a while 60 files take %d bytes", n)
	}
	u = Disk{most: 100, step: 1000}
	fill(t, dir, 60, 1000)
	if n := scan(); n < 50*4096 || n > 150*4096 {
		t.Errorf("a scan of 100 of 1000 files finds %d bytes", n)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, _, err := u.Of(over, dir, 0); err != nil || n == 0 {
		t.Errorf("with an ended context: %d bytes, %v", n, err)
	}
}

// If no process has used the CPU, none has written.
func TestIdleSandboxesAreNotScanned(t *testing.T) {
	dir := t.TempDir()
	var u Disk
	var last uint64
	for _, tt := range []struct {
		what string
		cpu  time.Duration
		more bool
	}{
		{"the first time", time.Second, true},
		{"did not run", time.Second, false},
		{"ran", time.Second + 1, true},
		{"not counted", 0, true},
		{"not counted, again", 0, true},
		{"counted again", time.Second + 1, true},
	} {
		fill(t, dir, int(last), int(last)+10)
		n, files, err := u.Of(t.Context(), dir, tt.cpu)
		if err != nil || (files > last) != tt.more || n == 0 {
			t.Errorf("%s: %d bytes in %d files, %v", tt.what, n, files, err)
		}
		last = files
	}
}
