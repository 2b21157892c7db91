package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// With memory false only the files are kept; then traffic does not resume the sandbox.
func TestPausedWithoutMemoryOnTheWire(t *testing.T) {
	f := newFixture(t)
	f.do("POST", "/v2/sandboxes", `{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`).
		wantError(t, "autoResume of files alone", 400)
	f.do("POST", "/v2/sandboxes", `{"templateID":"base","autoPauseMemory":false}`).wantError(t, "files alone without a pause", 400)
	m := f.create(`{"templateID":"base","timeout":60,"autoPause":true,"autoPauseMemory":false}`)
	if a := f.do("GET", "/sandboxes/"+m.ID, ""); !strings.Contains(a.body, `"onTimeout":"pause"`) {
		t.Errorf("detail: %s", a.body)
	}
	wakes := f.create(`{"templateID":"base","timeout":60,"autoPause":true,"autoResume":{"enabled":true}}`)
	of := []string{"E2b-Sandbox-Id", wakes.ID, "X-Access-Token", wakes.Token}
	for body, code := range map[string]int{`{"memory":true}`: 200, `{"memory":false}`: 502} {
		path := "/sandboxes/" + wakes.ID
		f.do("POST", path+"/pause", body).want(t, "pause "+body, 204, "")
		f.listProcesses(of...).want(t, "traffic after pause "+body, code, "")
		f.do("POST", "/v2"+path+"/connect", "")
		f.listProcesses(of...).want(t, "after connect", 200, "")
	}
}

func TestPausedSandboxOnTheWire(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","timeout":60,"metadata":{"of":"pause"}}`)
	path := "/sandboxes/" + m.ID
	f.do("POST", path+"/resume", `{"timeout":60}`).wantError(t, "resume of a running sandbox", 409)
	f.do("POST", path+"/connect", `{"timeout":60}`).want(t, "connect to a running sandbox", 200, "")
	f.do("POST", path+"/pause", "").want(t, "pause", 204, "")
	f.do("POST", path+"/pause", "").wantError(t, "pause again", 409)
	f.do("POST", "/sandboxes/i00000000000000000000/pause", "").wantError(t, "pause of an unknown sandbox", 404)
	f.do("POST", path+"/timeout", `{"timeout":60}`).wantError(t, "timeout of a paused one", 404)
	if a := f.do("GET", path, "").want(t, "detail", 200, ""); !strings.Contains(a.body, `"state":"paused"`) {
		t.Errorf("detail: %s", a.body)
	}
	lists := map[string]bool{ // whether the sandbox is listed
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
	f.do("POST", "/v2"+path+"/connect", `{"timeout":60,"memory":false}`).want(t, "connect with a reboot", 201, "")
	f.do("POST", "/v2"+path+"/connect", `{"timeout":60,"memory":false}`).want(t, "connect with a reboot to a running sandbox", 200, "")
	f.do("POST", path+"/pause", "").want(t, "pause", 204, "")
	f.do("DELETE", path, "").want(t, "delete of a paused one", 204, "")
	f.do("POST", path+"/connect", `{"timeout":60}`).wantError(t, "connect after the end", 404)
}

// As with E2B: a health check with the sandbox's token resumes a paused sandbox that has
// autoResume; for other paused sandboxes it reports that they do not run.
func TestHealthOfAPausedSandbox(t *testing.T) {
	f := newFixture(t)
	health := func(m createdSandbox, token string) answer {
		return f.do("GET", "/health", "", "E2b-Sandbox-Id", m.ID, "X-Access-Token", token, "X-Api-Key", "")
	}
	wakes := f.create(`{"templateID":"base","timeout":60,"secure":true,"autoPause":true,"autoResume":{"enabled":true}}`)
	f.do("POST", "/sandboxes/"+wakes.ID+"/pause", "").want(t, "pause", 204, "")
	for _, token := range []string{"", "wrong"} {
		if a := health(wakes, token); a.code != 403 || !strings.Contains(a.body, `"sandboxId":"`+wakes.ID+`"`) {
			t.Errorf("with token %q: %d %s", token, a.code, a.body)
		}
	}
	if a := f.do("GET", "/sandboxes/"+wakes.ID, ""); !strings.Contains(a.body, `"state":"paused"`) {
		t.Errorf("after refused checks: %s", a.body)
	}
	health(wakes, wakes.Token).want(t, "with its token", 204, "")
	if a := f.do("GET", "/sandboxes/"+wakes.ID, ""); !strings.Contains(a.body, `"state":"running"`) {
		t.Errorf("after the check: %s", a.body)
	}
	stays := f.create(`{"templateID":"base","timeout":60,"secure":true,"autoPause":true}`)
	f.do("POST", "/sandboxes/"+stays.ID+"/pause", "").want(t, "pause", 204, "")
	for _, token := range []string{"", stays.Token} {
		if a := health(stays, token); a.code != 502 {
			t.Errorf("without autoResume: %d %s", a.code, a.body)
		}
	}
	var open createdSandbox
	f.do("POST", "/sandboxes", `{"templateID":"base","timeout":60,"secure":false,"autoPause":true,"autoResume":{"enabled":true}}`).want(t, "create", 201, "").decode(t, &open)
	f.do("POST", "/sandboxes/"+open.ID+"/pause", "").want(t, "pause", 204, "")
	health(open, "").want(t, "not secured", 204, "")
}

func TestConcurrentPauses(t *testing.T) {
	f := newFixture(t)
	path := "/sandboxes/" + f.create(base).ID
	var all errgroup.Group
	for range 5 {
		all.Go(func() error {
			if a := f.do("POST", path+"/pause", ""); a.code != 204 {
				return fmt.Errorf("pause: %d %s", a.code, a.body)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	f.do("POST", path+"/pause", "").wantError(t, "a later pause", 409)
}

// A client that connects while others pause the sandbox never gets "paused".
func TestConnectDuringPauses(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	var all errgroup.Group
	for range 2 {
		all.Go(func() error {
			for range 50 {
				if a := f.do("POST", "/sandboxes/"+m.ID+"/connect", `{"timeout":60}`); a.code != 200 && a.code != 201 {
					return fmt.Errorf("connect: %d %s", a.code, a.body)
				}
			}
			return nil
		})
	}
	all.Go(func() error {
		for range 50 {
			f.do("POST", "/sandboxes/"+m.ID+"/pause", "")
		}
		return nil
	})
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}
