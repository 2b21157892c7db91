package instances

import "testing"

// KVM is probed with a program that can be a guest's init, such as the configured shim, since
// this program may not be static.
func TestKVMIsProbedWithTheShim(t *testing.T) {
	for want, shim := range map[string][]string{"/named": {"/named"}, "": {ShimSelf}} {
		if got := NewShim(shim, "", nil).MachineInit(); got != want {
			t.Errorf("%v: %q, want %q", shim, got, want)
		}
	}
	if got := NewShim([]string{"/some", "arguments"}, "", nil).MachineInit(); got != "" {
		t.Errorf("shim with arguments: %q", got)
	}
}
