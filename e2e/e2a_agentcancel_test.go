package e2e_test

import (
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// E-143, E-233: a cancel at the moment of the create ends the agent as a later one does: its exit code is in
// the sandbox.
func TestE2AAgentCancelledAtOnce(t *testing.T) {
	t.Parallel()
	s := agentHosts(t, rig.Topology{})
	a := s.APIs[0]
	for range 5 {
		vm := newAgent(t, a, map[string]any{"task": "exec sleep 600"})
		a.Want(t, 200, "POST", "/v1/sandboxes/"+vm.ID+"/cancel", `{"reason":"timeout"}`, bearer(a)...)
		vm.leaves(t, "cancel at once", "failed", 143, "")
	}
}
