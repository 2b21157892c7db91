package e2e_test

import (
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// None of a hundred creates at once is refused with the capacity that comes from the
// machine, nor where they wait because there is room for ten.
func TestBurstOfCreates(t *testing.T) {
	for name, args := range map[string][]string{
		"default capacity": nil,
		"capacity 10":      {"--capacity", "10", "--queue-timeout", "60s"},
	} {
		t.Run(name, func(t *testing.T) {
			runNode(t, rig.NewUp(t, rig.Options{Args: args}).API, "burst.mjs", "100")
		})
	}
}
