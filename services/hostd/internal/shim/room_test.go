package shim

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Where memory has no room, what the disk has room for is read, and nothing more.
func TestReadsWhatTheDiskHasRoomFor(t *testing.T) {
	for _, tt := range []struct {
		used int64
		want bool
	}{{0, true}, {8 << 20, false}} {
		s := New(Config{})
		s.disk = &disk{live: tt.used}
		s.setLimits(wire.Limits{SpoolTotal: 1 << 20, Disk: 8 << 20})
		s.bytes = 1 << 20 // others'
		if got := s.fits(&proc{s: s}); got != tt.want {
			t.Errorf("%d bytes on the disk: %v", tt.used, got)
		}
	}
}
