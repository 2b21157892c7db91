package hostd

import "testing"

// Whether KVM works is found out with a program that can be a guest's first one, as the
// shim that was named, where this one may not be static.
func TestKVMIsTriedWithTheShim(t *testing.T) {
	for want, shim := range map[string][]string{"/named": {"/named"}, "": {ShimSelf}} {
		if got := machineInit(&Config{Shim: shim}); got != want {
			t.Errorf("%v: %q, want %q", shim, got, want)
		}
	}
	if got := machineInit(&Config{Shim: []string{"/some", "arguments"}}); got != "" {
		t.Errorf("a shim with arguments: %q", got)
	}
}
