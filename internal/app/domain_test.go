package app

import (
	"net"
	"testing"
)

func TestLocalDomain(t *testing.T) {
	for ip, want := range map[string]string{
		"127.0.0.1": "localhost:7300", "::1": "localhost:7300", "0.0.0.0": "localhost:7300", "::": "localhost:7300",
		"127.0.0.2": "", "192.0.2.1": "", "2001:db8::1": "",
	} {
		if got := localDomain(&net.TCPAddr{IP: net.ParseIP(ip), Port: 7300}); got != want {
			t.Errorf("at %s: %q, want %q", ip, got, want)
		}
	}
	if got := localDomain(&net.UnixAddr{Name: "x"}); got != "" {
		t.Errorf("at a unix socket: %q", got)
	}
}
