package gateway_test

import (
	"strings"
	"testing"
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
