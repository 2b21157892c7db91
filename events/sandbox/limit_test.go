package sandbox

import (
	"slices"
	"testing"
)

func TestLimits(t *testing.T) {
	r := Requested{Resources: Resources{CPUMilli: 1500, PIDs: 100}}
	if got, want := r.Limits(), []Limit{LimitCPU, LimitPIDs}; !slices.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
	if got, want := Missing(r.Limits(), []Limit{LimitPIDs, LimitMemory}), []Limit{LimitCPU}; !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	s := State{Request: r, Driver: "namespace", Host: "h", Unenforced: []Limit{LimitCPU}}
	if got, want := s.Warnings(), []string{"the cpu limit of 1.5 CPUs is not enforced: driver namespace cannot enforce it on host h"}; !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
