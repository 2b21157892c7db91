package gateway_test

import (
	"strings"
	"testing"
)

// /v1/store/sandboxes also lists ended sandboxes, and only one tenant's.
func TestEndedSandboxesAreListed(t *testing.T) {
	f := newFixture(t)
	one := f.create(`{"templateID":"base","timeout":60,"metadata":{"a":"1"}}`)
	two := f.create(`{"templateID":"base","timeout":60}`)
	f.do("DELETE", "/sandboxes/"+one.ID, "").want(t, "delete", 204, "")
	for _, tt := range []struct {
		query    string
		one, two bool
	}{
		{"", true, true},
		{"?state=ended", true, false},
		{"?state=starting,running,paused,stopping", false, true},
		{"?metadata=a%3D1", true, false},
		{"?metadata=a%3D2", false, false},
	} {
		body := f.do("GET", "/v1/store/sandboxes"+tt.query, "").want(t, tt.query, 200, "").body
		if strings.Contains(body, one.ID) != tt.one || strings.Contains(body, two.ID) != tt.two {
			t.Errorf("%q: ended %v, running %v: %s", tt.query, tt.one, tt.two, body)
		}
		if body := f.do("GET", "/v1/store/sandboxes"+tt.query, "", "X-Api-Key", bobKey).body; body != "[]" {
			t.Errorf("%q for another tenant: %s", tt.query, body)
		}
	}
	shown := f.do("GET", "/v1/store/sandboxes/"+one.ID, "").want(t, "show", 200, "").body
	if !strings.Contains(shown, `"state":"ended","outcome":"destroyed"`) || strings.Contains(shown, "oken") {
		t.Errorf("ended: %s", shown)
	}
	f.do("GET", "/v1/store/sandboxes?state=dead", "").wantError(t, "a state that does not exist", 400)
	f.do("GET", "/v1/store/sandboxes?metadata=a", "").wantError(t, "metadata without a value", 400)
	tunnel := "/v1/store/sandboxes/" + two.ID + "/ports/"
	f.do("GET", tunnel+"80", "", "X-Api-Key", bobKey, "Connection", "Upgrade", "Upgrade", "tcp").wantError(t, "another tenant's port", 404)
	f.do("GET", tunnel+"80", "").wantError(t, "no upgrade", 426)
	f.do("GET", tunnel+"0", "", "Connection", "Upgrade", "Upgrade", "tcp").wantError(t, "port 0", 400)
	f.do("GET", tunnel+"80", "", "Connection", "Upgrade", "Upgrade", "tcp").wantError(t, "a port on which nothing listens", 502)
}
