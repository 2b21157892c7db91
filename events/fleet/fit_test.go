package fleet

import "testing"

// Files can be used where a driver says the same; memory wants the same CPU, too,
// and what stood on a host's own files wants those.
func TestFit(t *testing.T) {
	made := Lease{Drivers: []string{"gvisor", "namespace", "microvm", "old"}, Fits: []string{"gvisor 1", "namespace 1", "", "old 1"}, FileFits: []string{"files"}, System: "debian", CPU: "amd"}
	otherCPU, otherSystem, unknownCPU := made, made, made
	otherCPU.CPU, otherSystem.System, unknownCPU.CPU = "intel", "alpine", ""
	for _, c := range []struct {
		name   string
		driver string
		needs  Needs
		on     Lease
		want   bool
	}{
		{"files", "gvisor", Needs{}, otherCPU, true},
		{"files on the host's own", "gvisor", Needs{System: true}, otherCPU, true},
		{"files on another host's own", "gvisor", Needs{System: true}, otherSystem, false},
		{"memory", "gvisor", Needs{CPU: true}, otherSystem, true},
		{"memory and another CPU", "gvisor", Needs{CPU: true}, otherCPU, false},
		{"memory and a CPU that cannot be told", "gvisor", Needs{CPU: true}, unknownCPU, false},
		{"files of a driver that says something else of them", "old", Needs{}, otherCPU, true},
		{"a driver that says nothing", "microvm", Needs{}, made, false},
		{"a driver that is not offered", "direct", Needs{}, made, false},
	} {
		if got := made.Fit(c.driver, c.needs); (got != "" && got == c.on.Fit(c.driver, c.needs)) != c.want {
			t.Errorf("%s: here %q, there %q", c.name, got, c.on.Fit(c.driver, c.needs))
		}
	}
}
