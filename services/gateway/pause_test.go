package gateway_test

import (
	"strings"
	"testing"
)

func TestPausedSandboxOnTheWire(t *testing.T) {
	f := newFront(t)
	m := f.create(`{"templateID":"base","timeout":60,"metadata":{"of":"pause"}}`)
	path := "/sandboxes/" + m.ID
	f.do("POST", path+"/resume", `{"timeout":60}`).wantError(t, "resume of one that runs", 409)
	f.do("POST", path+"/connect", `{"timeout":60}`).want(t, "connect to one that runs", 200, "")
	f.do("POST", path+"/pause", `{"memory":false}`).wantError(t, "pause without memory", 501)
	f.do("POST", path+"/pause", "").want(t, "pause", 204, "")
	f.do("POST", path+"/pause", "").wantError(t, "pause again", 409)
	f.do("POST", "/sandboxes/i00000000000000000000/pause", "").wantError(t, "pause of nothing", 404)
	f.do("POST", path+"/timeout", `{"timeout":60}`).wantError(t, "timeout of a paused one", 404)
	if a := f.do("GET", path, "").want(t, "detail", 200, ""); !strings.Contains(a.body, `"state":"paused"`) {
		t.Errorf("detail: %s", a.body)
	}
	lists := map[string]bool{ // whether it is in them
		"/v2/sandboxes": true, "/v2/sandboxes?state=paused": true, "/v2/sandboxes?state=running,paused": true,
		"/v2/sandboxes?state=running": false, "/sandboxes": false, "/v2/sandboxes?state=paused&metadata=of%3Dother": false,
	}
	for list, want := range lists {
		if a := f.do("GET", list, "").want(t, list, 200, ""); strings.Contains(a.body, m.ID) != want {
			t.Errorf("%s: %s", list, a.body)
		}
	}
	if a := f.do("GET", "/health?sandbox="+m.ID, ""); a.code != 502 {
		t.Errorf("health of a paused sandbox: %d %s", a.code, a.body)
	}
	f.do("POST", path+"/connect", `{"timeout":60}`).want(t, "connect to a paused one", 201, "")
	if a := f.do("GET", "/health?sandbox="+m.ID, ""); a.code != 204 {
		t.Errorf("health of a resumed sandbox: %d %s", a.code, a.body)
	}
	f.do("POST", path+"/pause", `{"memory":true}`).want(t, "pause", 204, "")
	f.do("POST", path+"/resume", `{"timeout":60,"autoPause":true}`).want(t, "resume", 201, "")
	if a := f.do("GET", path, ""); !strings.Contains(a.body, `"onTimeout":"pause"`) {
		t.Errorf("detail after autoPause: %s", a.body)
	}
	f.do("POST", path+"/pause", "").want(t, "pause", 204, "")
	f.do("DELETE", path, "").want(t, "delete of a paused one", 204, "")
	f.do("POST", path+"/connect", `{"timeout":60}`).wantError(t, "connect after the end", 404)
}
