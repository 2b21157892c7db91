//go:build linux

package drivertest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// testCancelCreate cancels creates at points spread over one, and checks each time that
// nothing of it exists when Create returns. Besides what checkClean looks for, no
// process may be left that was started for it, under any name.
func (s *suite) testCancelCreate(t *testing.T) {
	d := s.newDriver(t)          // a single driver, since it may keep descriptors
	cancelCreate(t, d, waitTime) // fills permanent caches
	whole := cancelCreate(t, d, waitTime)
	before := countLeakable(t)
	for i := range s.scale.Moments {
		cancelCreate(t, d, whole*time.Duration(i)/time.Duration(s.scale.Moments))
	}
	checkNoLeaks(t, before)
}

// cancelCreate starts a create, cancels it after a while if it has not ended by then, and
// returns how long it took.
func cancelCreate(t *testing.T, d driver.Driver, after time.Duration) time.Duration {
	t.Helper()
	sp, root := spec(t)
	sp.MemoryMiB, sp.DiskMiB = 256, 16
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(after, cancel).Stop()
	start := time.Now()
	in, err := d.Create(ctx, sp)
	took := time.Since(start)
	switch {
	case err == nil:
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("canceled after %v, too late: destroy: %v", after, err)
		}
	case !kind.Is(err, kind.Canceled):
		t.Errorf("canceled after %v: %v, want Canceled", after, err)
	}
	awaitNoProcesses(sp)
	checkClean(t, sp)
	if t.Failed() {
		t.Fatalf("canceled after %v, which took %v", after, took)
	}
	os.RemoveAll(root)
	return took
}
