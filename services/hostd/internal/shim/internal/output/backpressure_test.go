package output

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
		b := New(Config{})
		b.disk = &disk{live: tt.used}
		b.SetLimits(wire.Limits{SpoolTotal: 1 << 20, Disk: 8 << 20})
		b.bytes = 1 << 20 // of other processes
		if got := b.hasSpace(&Record{b: b}); got != tt.want {
			t.Errorf("%d bytes on the disk: %v", tt.used, got)
		}
	}
}
