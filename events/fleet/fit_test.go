package fleet

import "testing"

// Files are compatible if the drivers report the same. Memory also requires the same CPU,
// and a sandbox based on the host's own files the same system.
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
		{"memory and an unknown CPU", "gvisor", Needs{CPU: true}, unknownCPU, false},
		{"files of a driver that reports something else", "old", Needs{}, otherCPU, true},
		{"a driver that reports nothing", "microvm", Needs{}, made, false},
		{"a driver that is not offered", "direct", Needs{}, made, false},
	} {
		if got := made.Fit(c.driver, c.needs); (got != "" && got == c.on.Fit(c.driver, c.needs)) != c.want {
			t.Errorf("%s: here %q, there %q", c.name, got, c.on.Fit(c.driver, c.needs))
		}
	}
}
