package hostd

import "testing"

// KVM is probed with a program that can be a guest's init, such as the configured shim, since
// this program may not be static.
func TestKVMIsProbedWithTheShim(t *testing.T) {
	for want, shim := range map[string][]string{"/named": {"/named"}, "": {ShimSelf}} {
		if got := machineInit(&Config{Shim: shim}); got != want {
			t.Errorf("%v: %q, want %q", shim, got, want)
		}
	}
	if got := machineInit(&Config{Shim: []string{"/some", "arguments"}}); got != "" {
		t.Errorf("shim with arguments: %q", got)
	}
}
