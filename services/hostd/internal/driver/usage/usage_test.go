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

// fill makes files of a block each.
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

// Who has many files is looked at seldom, and never longer than so many take.
func TestALookIsBounded(t *testing.T) {
	dir := t.TempDir()
	u := Disk{most: 100, step: 10}
	look := func() uint64 {
		t.Helper()
		n, files, err := u.Of(t.Context(), dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if blocks := n / 4096; files > blocks+1 || files+8 < blocks { // a directory takes more than one at times; of the last file of a look only that it is there counts
			t.Errorf("%d files take %d blocks", files, blocks)
		}
		return n
	}
	fill(t, dir, 0, 4)
	few := look()
	fill(t, dir, 4, 53)
	all := look()
	if few < 4*4096 || all < 53*4096 {
		t.Errorf("4 files take %d bytes, 53 take %d", few, all)
	}
	fill(t, dir, 53, 60) // with the directories it looked at 60, and so leaves 6 looks out
	for i := range 6 {
		if n := look(); n != all {
			t.Errorf("look %d: %d bytes, not %d", i, n, all)
		}
	}
	if n := look(); n < 60*4096 {
		t.Errorf("after a while 60 files take %d bytes", n)
	}
	u = Disk{most: 100, step: 1000}
	fill(t, dir, 60, 1000)
	if n := look(); n < 50*4096 || n > 150*4096 {
		t.Errorf("of 1000 files a look at 100 finds %d bytes", n)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, _, err := u.Of(over, dir, 0); err != nil || n == 0 {
		t.Errorf("without time: %d bytes, %v", n, err)
	}
}

// Where nobody has used the CPU nobody has written either.
func TestOnlyWhoRanIsLookedAt(t *testing.T) {
	dir := t.TempDir()
	var u Disk
	var last uint64
	for _, tt := range []struct {
		what string
		cpu  time.Duration
		more bool
	}{
		{"the first time", time.Second, true},
		{"who did not run", time.Second, false},
		{"who ran", time.Second + 1, true},
		{"who is not counted", 0, true},
		{"who is not counted, again", 0, true},
		{"who is counted again", time.Second + 1, true},
	} {
		fill(t, dir, int(last), int(last)+10)
		n, files, err := u.Of(t.Context(), dir, tt.cpu)
		if err != nil || (files > last) != tt.more || n == 0 {
			t.Errorf("%s: %d bytes in %d files, %v", tt.what, n, files, err)
		}
		last = files
	}
}
