package ownaddr

import (
	"net/netip"
	"testing"
)

func TestHas(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1": true, "::ffff:127.0.0.1": true, "8.8.8.8": false} {
		if got := Has(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Has(%s) = %v, want %v", addr, got, want)
		}
	}
}
