package hostd

import (
	"testing"

	"github.com/millrace/millrace/events/eventstest"
)

// An epoch fences what was written before it, so it is never used twice, even if a damaged disk
// of the servers loses the lease.
func TestEpochsGrowIfTheLeaseIsLost(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	first := r.awaitLease(0)
	r.kill()
	eventstest.Forget(t, r.srv, "HOSTS")
	r.begin()
	if got := r.awaitLease(first); got != first+1 {
		t.Errorf("epoch %d after %d, want the next one", got, first)
	}
	r.kill()
}
