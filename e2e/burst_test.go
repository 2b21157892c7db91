package e2e_test

import (
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// A hundred creates at once all succeed with the machine's default capacity, and also if
// they have to wait for a capacity of ten.
func TestBurstOfCreates(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"default capacity": nil,
		"capacity 10":      {"--capacity", "10", "--queue-timeout", "60s"},
	} {
		t.Run(name, func(t *testing.T) {
			runNode(t, rig.NewUp(t, rig.Options{Args: args}).API, "burst.mjs", "100")
		})
	}
}
