package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLimitsOnTheWire(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","cpuCount":1.5,"memoryMB":64,"diskSizeMB":100,"pids":50,"isolation":"process"}`)
	a := f.do("GET", "/sandboxes/"+m.ID, "").want(t, "detail", 200, "")
	for _, part := range []string{`"cpuCount":2`, `"memoryMB":64`, `"diskSizeMB":100`, `"isolation":"process"`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("no %s in %s", part, a.body)
		}
	}
	for _, bad := range []string{`"cpuCount":0`, `"cpuCount":-1`, `"cpuCount":1e9`, `"memoryMB":1`, `"memoryMB":-1`, `"memoryMB":1e12`,
		`"diskSizeMB":0`, `"pids":1`, `"pids":15`, `"pids":9999999999`, `"isolation":"fortress"`, `"isolation":"Kernel"`, `"memoryMB":"64"`,
		`"metadata":{"millrace.isolation":"fortress"}`} {
		f.do("POST", "/sandboxes", `{"templateID":"base",`+bad+`}`).wantError(t, bad, 400)
	}
	if a := f.do("POST", "/sandboxes", `{"templateID":"base","pids":16.5}`); !strings.Contains(a.body, `"pids: must not be a JSON number 16.5"`) {
		t.Errorf("a fraction: %s", a.body)
	}
}

// No timeout, refresh or connect moves the hard end of a sandbox.
func TestHardEndOnTheWire(t *testing.T) {
	f := newFixture(t)
	for _, bad := range []string{`"hardEnd":0`, `"hardEnd":-1`, `"hardEnd":1e12`, `"hardEnd":"60"`, `"hardEndWarning":5`, `"hardEnd":60,"hardEndWarning":61`, `"hardEnd":60,"hardEndWarning":0`} {
		f.do("POST", "/sandboxes", `{"templateID":"base",`+bad+`}`).wantError(t, bad, 400)
	}
	began := time.Now()
	m := f.create(`{"templateID":"base","timeout":3600,"hardEnd":60,"hardEndWarning":10}`)
	ended := time.Now()
	check := func(what string) {
		t.Helper()
		var got struct {
			EndAt time.Time `json:"endAt"`
		}
		a := f.do("GET", "/sandboxes/"+m.ID, "").want(t, what, 200, "")
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.EndAt.Before(began.Add(time.Minute)) || got.EndAt.After(ended.Add(time.Minute)) {
			t.Errorf("%s: endAt %v, %v; created at %v", what, got.EndAt, err, began)
		}
	}
	check("create")
	for _, call := range [][2]string{{"/timeout", `{"timeout":1800}`}, {"/refreshes", `{"duration":3000}`}, {"/connect", `{"timeout":1800}`}} {
		f.do("POST", "/sandboxes/"+m.ID+call[0], call[1])
		check(call[0])
	}
	f.do("POST", "/sandboxes/"+m.ID+"/pause", "").want(t, "pause", 204, "")
	f.do("POST", "/sandboxes/"+m.ID+"/connect", `{"timeout":1800}`).want(t, "resume", 201, "")
	check("resume")
	if a := f.do("GET", "/v1/store/sandboxes/"+m.ID, ""); !strings.Contains(a.body, `"hard_end_at":"`) {
		t.Errorf("detail: %s", a.body)
	}
}
