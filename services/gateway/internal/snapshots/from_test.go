package snapshots_test

import (
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

// A sandbox from a snapshot is at least as isolated as the request and the snapshot demand;
// the scheduler chooses the driver.
func TestFromKeepsTheIsolation(t *testing.T) {
	for _, c := range []struct{ snap, req, want sandbox.Isolation }{
		{"", "", ""}, {"kernel", "", "kernel"}, {"", "kernel", "kernel"}, {"kernel", "process", "kernel"}, {"process", "machine", "machine"},
	} {
		got := snapshots.From(&sandbox.Snapshot{Driver: "namespace", Isolation: c.snap}, sandbox.Requested{Isolation: c.req})
		if got.Isolation != c.want || got.Driver != "" {
			t.Errorf("%q and %q: %q by %q, want %q", c.snap, c.req, got.Isolation, got.Driver, c.want)
		}
	}
}
