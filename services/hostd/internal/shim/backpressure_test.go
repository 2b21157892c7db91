package shim

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestOutputIsReadWhileTheDiskHasSpace, though memory is full, and not beyond.
func TestOutputIsReadWhileTheDiskHasSpace(t *testing.T) {
	for _, tt := range []struct {
		used int64
		want bool
	}{{0, true}, {8 << 20, false}} {
		s := New(Config{})
		s.disk = &disk{live: tt.used}
		s.setLimits(wire.Limits{SpoolTotal: 1 << 20, Disk: 8 << 20})
		s.bytes = 1 << 20 // of other processes
		if got := s.hasSpace(&proc{s: s}); got != tt.want {
			t.Errorf("%d bytes on the disk: %v", tt.used, got)
		}
	}
}
