package veth

import (
	"os"
	"strings"
	"testing"
)

// ip_forward has its previous value when the last host on the machine has closed.
func TestForwardingIsRestored(t *testing.T) {
	h := newTestHost(t)
	h.do(t, func(n *Net) error { return n.Close(t.Context()) })
	forwarding := func() (is string) {
		h.do(t, func(*Net) error {
			b, err := os.ReadFile(forwardPath)
			is = strings.TrimSpace(string(b))
			return err
		})
		return is
	}
	for _, before := range []string{"0", "1"} {
		h.do(t, func(*Net) error { return os.WriteFile(forwardPath, []byte(before), 0) })
		h.cfg.Key = t.Name()
		h.open(t)
		first := h.net
		h.cfg.Key = "another " + t.Name()
		h.open(t)
		second := h.net
		h.do(t, func(*Net) error { return first.Close(t.Context()) })
		if got := forwarding(); got != "1" {
			t.Errorf("ip_forward is %s while a host has rules, want 1", got)
		}
		h.do(t, func(*Net) error { return second.Close(t.Context()) })
		if got := forwarding(); got != before {
			t.Errorf("ip_forward is %s in the end, want %s as before", got, before)
		}
	}
}
