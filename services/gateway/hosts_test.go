package gateway_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway"
)

// E-001: routes of one host do not exist on the other, in e2a's form.
func TestHostsHaveTheirOwnRoutes(t *testing.T) {
	f := newFixture(t)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	f.serve(gateway.Config{Listen: "127.0.0.1:0", Public: gateway.PublicConfig{APIHost: "api.test", RuntimeHost: "rt.test"}})
	bearer := []string{"Authorization", "Bearer " + key, "X-Api-Key", ""}
	for _, tt := range []struct {
		host, path string
		want       int
	}{
		{"api.test", "/v1/tenants/me/api-keys", 200},
		{"rt.test", "/v1/tenants/me/api-keys", 404},
		{f.addr, "/v1/tenants/me/api-keys", 404},
		{"api.test", "/v1/sessions/ses_x/ws", 404},
		{"rt.test", "/livez", 404},
		{"rt.test", "/metrics", 404},
		{"rt.test", "/sandboxes", 404},
		{"rt.test", "/", 404},
		{f.addr, "/livez", 200},
		{f.addr, "/metrics", 200},
		{"api.test", "/sandboxes", 200},
	} {
		a := f.do("GET", tt.path, "", append(bearer, "Host", tt.host)...).want(t, tt.host+tt.path, tt.want, "")
		if tt.want == 404 && !strings.HasPrefix(a.body, `{"error":"not_found","message":`) {
			t.Errorf("%s%s: %s", tt.host, tt.path, a.body)
		}
	}
	// Both forms of the response to a request without a route are equal, with and without a key.
	bare := f.do("GET", "/v1/tenants/me", "", "Host", "rt.test", "X-Api-Key", "")
	keyed := f.do("GET", "/v1/tenants/me", "", append(bearer, "Host", "rt.test")...)
	if bare.code != keyed.code || bare.body != keyed.body {
		t.Errorf("%+v\n%+v", bare, keyed)
	}
}

func TestPublicSettingsAreChecked(t *testing.T) {
	for name, p := range map[string]gateway.PublicConfig{
		"one file":     {Cert: "x"},
		"no file":      {Cert: "/nonexistent", Key: "/nonexistent"},
		"one host":     {APIHost: "api.test"},
		"equal hosts":  {APIHost: "api.test:1", RuntimeHost: "API.test:2"},
		"URL as host":  {APIHost: "https://api.test", RuntimeHost: "rt.test"},
		"path in host": {APIHost: "api.test", RuntimeHost: "rt.test/"},
	} {
		if err := p.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	p := gateway.PublicConfig{APIHost: "api.test", RuntimeHost: "rt.test:8443"}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}
