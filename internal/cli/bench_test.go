package cli

import (
	"slices"
	"strings"
	"testing"
)

// The timeout of bench's sandbox is reduced to the gateway's maximum, and bench removes it
// at its end.
func TestBenchReducesTimeoutsToTheMaximum(t *testing.T) {
	g := newFakeGateway(t)
	g.Most = 1200
	if got := g.verb(nil, "bench", "--only", "start", "--count", "1"); strings.Contains(got.errOut+got.say, "timeout") {
		t.Errorf("exit %d %s %s", got.code, got.say, got.errOut)
	}
	if want := []int64{1800, 1200}; !slices.Equal(g.Timeouts, want) || len(g.Removed) != 1 {
		t.Errorf("timeouts %v, want %v; removed %d sandboxes, want 1", g.Timeouts, want, len(g.Removed))
	}
}
