//go:build linux

package files

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// If the disk is full, also in the middle of an upload, nothing is written.
func TestNothingIsWrittenToAFullDisk(t *testing.T) {
	full := kind.New(kind.Exhausted, "test", "", "disk full")
	for _, tt := range []struct {
		req   file.Request
		calls int // number of calls that return nil
	}{
		{file.Request{Op: file.OpMakeDir, Path: "dir"}, 0},
		{file.Request{Op: file.OpWrite, Path: "f"}, 0},
		{file.Request{Op: file.OpWrite, Path: "f"}, 1},
	} {
		r := newRig(t)
		r.put(t, "home/u/f", "old")
		calls := 0
		r.cfg.DiskFree = func() error {
			if calls++; calls > tt.calls {
				return full
			}
			return nil
		}
		err := r.exchange(t, tt.req, func(c *net.UnixConn) {
			c.Write(make([]byte, 100))
			c.CloseWrite()
		})
		names, _ := os.ReadDir(r.at("home/u"))
		if got, _ := os.ReadFile(r.at("home/u/f")); !errors.Is(err, full) || string(got) != "old" || len(names) != 1 {
			t.Errorf("%v: %v, %q, %v", tt.req, err, got, names)
		}
		r.cfg.DiskFree = func() error { return full }
		if _, err := r.read(t, "f", file.Range{}); err != nil {
			t.Errorf("an existing file cannot be read: %v", err)
		}
	}
}
