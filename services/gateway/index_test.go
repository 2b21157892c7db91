package gateway_test

import (
	"net"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/services/gateway"
)

func TestIndexDependsOnAccept(t *testing.T) {
	f := newFixture(t)
	for accept, want := range map[string]string{
		"": fiberJSON, "*/*": fiberJSON, "application/json": fiberJSON,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
	} {
		a := f.do("GET", "/", "", "X-Api-Key", "", "Accept", accept)
		if got := a.header.Get("Content-Type"); a.code != 200 || got != want {
			t.Errorf("GET / with Accept %q: %d %s, want 200 %s", accept, a.code, got, want)
		}
		if want == fiberJSON && !strings.Contains(a.body, `"name":"millrace","version":`) {
			t.Errorf("GET / with Accept %q: %s", accept, a.body)
		}
		if want != fiberJSON && !strings.Contains(a.body, "First call") {
			t.Errorf("page without a first call: %s", a.body)
		}
	}
}

const fiberJSON = "application/json"

// Without any key the gateway could serve no request: it fails to start and names the remedy.
func TestGatewayWithoutAnyKeyRefusesToStart(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = gateway.Run(t.Context(), gateway.Config{Listener: ln, Log: log, View: eventstest.View(t, log)})
	if err == nil || !strings.Contains(err.Error(), "MILLRACE_API_KEY") {
		t.Errorf("gateway without a key: %v, want the name of the variable", err)
	}
}

func TestWeakAPIKeysAreRefused(t *testing.T) {
	for key, ok := range map[string]bool{
		"e2b_" + strings.Repeat("0a", 20): true, "e2b_" + strings.Repeat("0", 32): true,
		"secret": false, "e2b_secretsecretsecretsecretsecretsecret": false, "e2b_0123": false, "e2b_" + strings.Repeat("A", 40): false,
	} {
		err := gateway.CheckAPIKey(key)
		if (err == nil) != ok {
			t.Errorf("CheckAPIKey(%q) = %v, want ok %v", key, err, ok)
		}
		if err != nil && key != "secret" && strings.Contains(err.Error(), key) {
			t.Errorf("the error of CheckAPIKey(%q) contains the key: %v", key, err)
		}
	}
}
