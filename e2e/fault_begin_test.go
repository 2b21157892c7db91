package e2e_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// NATS is killed at random moments while services start: each waits for NATS, none exits,
// and running processes continue.
func TestFaultNATSKilledWhileServicesStart(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{})
	box := s.APIs[0].Create(t)
	services := []string{"gateway-1", "scheduler-1", "reaper-1", "host-1"}
	const rounds = 30
	for i := range rounds {
		for _, name := range services {
			s.Program(name).Kill9()
		}
		for _, name := range services {
			must(t, s.Program(name).Restart())
		}
		same := sameRuns(t, s)
		<-time.After(time.Duration(rand.IntN(90_000)) * time.Microsecond)
		_, err := s.Crash("nats-1")
		must(t, err)
		must(t, s.APIs[0].AwaitReady(progressTimeout, s.Program("gateway-1")))
		if out := s.APIs[0].StartStream(t, box.ID, "echo here").All(t).Stdout(); out != "here\n" {
			t.Errorf("round %d: %q", i, out)
		}
		same()
	}
	if log := s.Program("host-1").Log(); strings.Contains(log, "level=ERROR") {
		t.Error(log)
	}
}
