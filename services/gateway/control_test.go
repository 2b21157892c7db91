package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func keys(t *testing.T, body string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return fmt.Sprint(sorted(out))
}

func sorted(s []string) []string {
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s
}

// TestSandboxLifecycleAsPlainJSON covers N-001: plain JSON requests create a sandbox, set its timeout and delete it.
func TestSandboxLifecycleAsPlainJSON(t *testing.T) {
	f := newFixture(t)
	a := f.do("POST", "/sandboxes", `{"templateID":"base","timeout":60,"secure":true}`).want(t, "create", 201, "")
	var m createdSandbox
	a.decode(t, &m)
	if !regexp.MustCompile(`^[a-z0-9]+$`).MatchString(m.ID) || m.Token == "" {
		t.Errorf("create: %s", a.body)
	}
	want := `{"templateID":"base","sandboxID":"` + m.ID + `","clientID":"millrace","envdVersion":"0.6.13","alias":"base",` +
		`"envdAccessToken":"` + m.Token + `","trafficAccessToken":null,"domain":"localhost:7300"}`
	if a.body != want {
		t.Errorf("create: %s\nwant    %s", a.body, want)
	}
	f.do("POST", "/sandboxes/"+m.ID+"/timeout", `{"timeout":120}`).want(t, "timeout", 204, "")
	f.do("DELETE", "/sandboxes/"+m.ID, "").want(t, "delete", 204, "")
	f.do("DELETE", "/sandboxes/"+m.ID, "").wantError(t, "delete again", 404)
	f.do("POST", "/sandboxes/"+m.ID+"/timeout", `{"timeout":120}`).wantError(t, "timeout after the end", 404)
}

func TestCreateDefaultsByVersion(t *testing.T) {
	f := newFixture(t)
	tests := []struct {
		path, body string
		secure     bool
		timeout    time.Duration
	}{
		{"/sandboxes", base, false, 15 * time.Second},
		{"/sandboxes", `{"templateID":"base","secure":true}`, true, 15 * time.Second},
		{"/v2/sandboxes", base, true, 5 * time.Minute},
		{"/v2/sandboxes", `{"templateID":"base","secure":false}`, true, 5 * time.Minute},
		{"/v2/sandboxes", `{"templateID":"host","timeout":62,"autoPause":true,"autoResume":{"enabled":true},"metadata":{},"envVars":{}}`, true, 62 * time.Second},
	}
	for _, tt := range tests {
		var m createdSandbox
		f.do("POST", tt.path, tt.body).want(t, tt.path, 201, "").decode(t, &m)
		if (m.Token != "") != tt.secure {
			t.Errorf("%s %s: token %q", tt.path, tt.body, m.Token)
		}
		var d struct {
			StartedAt time.Time `json:"startedAt"`
			EndAt     time.Time `json:"endAt"`
		}
		f.do("GET", "/sandboxes/"+m.ID, "").decode(t, &d)
		if got := time.Until(d.EndAt); got > tt.timeout || got < tt.timeout-10*time.Second {
			t.Errorf("%s %s: ends in %s, want %s", tt.path, tt.body, got, tt.timeout)
		}
	}
}

func TestDetailHasFieldsOfTheSDKs(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","metadata":{"k":"v"},"allow_internet_access":false}`)
	a := f.do("GET", "/sandboxes/"+m.ID+"-6532622b", "").want(t, "detail", 200, "")
	want := "[alias allowInternetAccess clientID cpuCount diskSizeMB domain endAt envdAccessToken envdVersion lifecycle memoryMB metadata sandboxID startedAt state templateID volumeMounts]"
	if got := keys(t, a.body); got != want {
		t.Errorf("fields %s\nwant   %s", got, want)
	}
	for _, part := range []string{`"state":"running"`, `"cpuCount":2`, `"memoryMB":4096`, `"diskSizeMB":8192`, `"metadata":{"k":"v"}`,
		`"allowInternetAccess":false`, `"lifecycle":{"autoResume":false,"onTimeout":"kill"}`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("no %s in %s", part, a.body)
		}
	}
}

// Every kind of bad input gets a typed error.
func TestBadInputIsTyped(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	create := func(fields string) string { return `{"templateID":"base",` + fields + `}` }
	tests := []struct {
		name, method, path, body string
		code                     int
	}{
		{"no body", "POST", "/sandboxes", "", 400},
		{"not JSON", "POST", "/sandboxes", "{", 400},
		{"trailing data", "POST", "/sandboxes", base + "x", 400},
		{"two values", "POST", "/sandboxes", base + base, 400},
		{"null", "POST", "/sandboxes", "null", 400},
		{"array", "POST", "/sandboxes", "[]", 400},
		{"byte order mark", "POST", "/sandboxes", "\ufeff" + base, 400},
		{"not UTF-8", "POST", "/sandboxes", "{\"templateID\":\"\xff\"}", 400},
		{"deep", "POST", "/sandboxes", create(`"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), 400},
		{"no template", "POST", "/sandboxes", `{}`, 400},
		{"unknown template", "POST", "/sandboxes", `{"templateID":"no-such-template"}`, 404},
		{"template of another type", "POST", "/sandboxes", `{"templateID":7}`, 400},
		{"negative timeout", "POST", "/sandboxes", create(`"timeout":-1`), 400},
		{"timeout past the limit", "POST", "/v2/sandboxes", create(`"timeout":86401`), 400},
		{"huge timeout", "POST", "/sandboxes", create(`"timeout":1000000000000000000`), 400},
		{"infinite timeout", "POST", "/sandboxes", create(`"timeout":1e999`), 400},
		{"NaN", "POST", "/sandboxes", create(`"timeout":NaN`), 400},
		{"fraction", "POST", "/sandboxes", create(`"timeout":1.5`), 400},
		{"timeout of another type", "POST", "/sandboxes", create(`"timeout":"60"`), 400},
		{"metadata of another type", "POST", "/sandboxes", create(`"metadata":{"a":1}`), 400},
		{"large metadata", "POST", "/sandboxes", create(`"metadata":{"a":"` + strings.Repeat("x", 65<<10) + `"}`), 400},
		{"environment name with =", "POST", "/sandboxes", create(`"envVars":{"a=b":"c"}`), 400},
		{"environment name empty", "POST", "/sandboxes", create(`"envVars":{"":"c"}`), 400},
		{"environment with NUL", "POST", "/sandboxes", create(`"envVars":{"a":"\u0000"}`), 400},
		{"rules for everything", "POST", "/sandboxes", create(`"network":{"rules":{"*":[]}}`), 400},
		{"rules for an address", "POST", "/sandboxes", create(`"network":{"rules":{"10.0.0.1":[]}}`), 400},
		{"rules of another type", "POST", "/sandboxes", create(`"network":{"rules":{"a.test":{}}}`), 400},
		{"a rule's header of another type", "POST", "/sandboxes", create(`"network":{"rules":{"a.test":[{"transform":{"headers":{"X":["y"]}}}]}}`), 400},
		{"a rule's header with a line end", "POST", "/sandboxes", create(`"network":{"rules":{"a.test":[{"transform":{"headers":{"X":"y\r\nZ: z"}}}]}}`), 400},
		{"a rule's header of the connection", "POST", "/sandboxes", create(`"network":{"rules":{"a.test":[{"transform":{"headers":{"Host":"b.test"}}}]}}`), 400},
		{"an unknown token variable", "POST", "/sandboxes", create(`"network":{"rules":{"a.test":[{"transform":{"headers":{"X":"${e2b.other.y}"}}}]}}`), 501},
		{"rules for eleven domains", "PUT", "/sandboxes/ID/network", `{"rules":{"a.t":[],"b.t":[],"c.t":[],"d.t":[],"e.t":[],"f.t":[],"g.t":[],"h.t":[],"i.t":[],"j.t":[],"k.t":[{}]}}`, 400},
		{"a proxy at a private address", "POST", "/sandboxes", create(`"network":{"egressProxy":{"address":"10.1.2.3:1080"}}`), 400},
		{"a proxy at a metadata address", "POST", "/v2/sandboxes", create(`"network":{"egressProxy":{"address":"[::ffff:169.254.169.254]:80"}}`), 400},
		{"a proxy on the host itself", "PUT", "/sandboxes/ID/network", `{"egressProxy":{"address":"localhost:1080"}}`, 400},
		{"a denied name", "POST", "/sandboxes", create(`"network":{"denyOut":["a.test"]}`), 400},
		{"all names denied", "PUT", "/sandboxes/ID/network", `{"denyOut":["*"]}`, 400},
		{"names allowed and the rest not denied", "POST", "/sandboxes", create(`"network":{"allowOut":["a.test"]}`), 400},
		{"a proxy without a port", "POST", "/sandboxes", create(`"network":{"egressProxy":{"address":"a.test"}}`), 400},
		{"a proxy of another type", "POST", "/sandboxes", create(`"network":{"egressProxy":"a.test:1"}`), 400},
		{"a proxy's password without a name", "PUT", "/sandboxes/ID/network", `{"egressProxy":{"address":"a.test:1","password":"p"}}`, 400},
		{"envd's port in TLS", "POST", "/sandboxes", create(`"network":{"httpsPorts":[49983]}`), 400},
		{"an invalid port in TLS", "POST", "/sandboxes", create(`"network":{"httpsPorts":[65536]}`), 400},
		{"an unknown volume", "POST", "/sandboxes", create(`"volumeMounts":[{"name":"v","path":"/v"}]`), 404},
		{"a volume at a relative path", "POST", "/sandboxes", create(`"volumeMounts":[{"name":"v","path":"v"}]`), 400},
		{"a volume over a system path", "POST", "/sandboxes", create(`"volumeMounts":[{"name":"v","path":"/proc/x"}]`), 400},
		{"an invalid network", "POST", "/sandboxes", create(`"network":{"denyOut":["0x7f.1"]}`), 400},
		{"a network of another type", "POST", "/sandboxes", create(`"network":{"denyOut":7}`), 400},
		{"a host to mask with a line end", "POST", "/sandboxes", create(`"network":{"maskRequestHost":"a\r\nb"}`), 400},
		{"set an invalid network", "PUT", "/sandboxes/ID/network", `{"allowOut":["a b"]}`, 400},
		{"set no network", "PUT", "/sandboxes/ID/network", "", 400},
		{"body past the limit", "POST", "/sandboxes", create(`"x":"` + strings.Repeat("x", 2<<20) + `"`), 413},
		{"connect without timeout", "POST", "/sandboxes/ID/connect", `{}`, 400},
		{"connect without body", "POST", "/sandboxes/ID/connect", "", 400},
		{"connect, negative", "POST", "/v2/sandboxes/ID/connect", `{"timeout":-1}`, 400},
		{"timeout missing", "POST", "/sandboxes/ID/timeout", `{}`, 400},
		{"timeout negative", "POST", "/sandboxes/ID/timeout", `{"timeout":-5}`, 400},
		{"refresh past the limit", "POST", "/sandboxes/ID/refreshes", `{"duration":3601}`, 400},
		{"refresh negative", "POST", "/sandboxes/ID/refreshes", `{"duration":-1}`, 400},
		{"resume of a running one", "POST", "/sandboxes/ID/resume", `{}`, 409},
		{"list, bad state", "GET", "/v2/sandboxes?state=dead", "", 400},
		{"list, bad order", "GET", "/v2/sandboxes?order=up", "", 400},
		{"list, bad limit", "GET", "/v2/sandboxes?limit=0", "", 400},
		{"list, large limit", "GET", "/v2/sandboxes?limit=101", "", 400},
		{"list, bad time", "GET", "/v2/sandboxes?startedAfter=yesterday", "", 400},
		{"list, bad token", "GET", "/v2/sandboxes?nextToken=%21", "", 400},
		{"list, bad metadata", "GET", "/v2/sandboxes?metadata=a%3D%2525zz", "", 400},
		{"logs, bad direction", "GET", "/v2/sandboxes/ID/logs?direction=up", "", 400},
		{"logs, bad limit", "GET", "/sandboxes/ID/logs?limit=-1", "", 400},
		{"unknown route", "GET", "/nothing", "", 404},
		{"wrong method", "PUT", "/v2/sandboxes", "", 405},
		{"upper case path", "GET", "/SANDBOXES", "", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.do(tt.method, strings.Replace(tt.path, "ID", m.ID, 1), tt.body).wantError(t, tt.method+" "+tt.path, tt.code)
		})
	}
	f.do("GET", "/sandboxes/"+m.ID, "").want(t, "the sandbox after all that", 200, "")
}

// Another tenant's id gets the same response as an unknown one.
func TestAnotherTenantsSandboxDoesNotExist(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	routes := []struct{ method, path, body string }{
		{"GET", "/sandboxes/ID", ""},
		{"DELETE", "/sandboxes/ID", ""},
		{"POST", "/sandboxes/ID/connect", `{"timeout":60}`},
		{"POST", "/v2/sandboxes/ID/connect", ""},
		{"POST", "/sandboxes/ID/timeout", `{"timeout":0}`},
		{"POST", "/sandboxes/ID/refreshes", ""},
		{"POST", "/sandboxes/ID/resume", ""},
		{"POST", "/sandboxes/ID/pause", ""},
		{"GET", "/sandboxes/ID/logs", ""},
		{"GET", "/v2/sandboxes/ID/logs", ""},
	}
	for _, r := range routes {
		foreign := f.do(r.method, strings.Replace(r.path, "ID", m.ID, 1), r.body, "X-Api-Key", bobKey)
		foreign.wantError(t, r.method+" "+r.path, 404)
		for _, id := range []string{"i00000000000000000000", "..", "a.b", "A", "i*", "%20", strings.Repeat("a", 4096)} {
			unknown := f.do(r.method, strings.Replace(r.path, "ID", id, 1), r.body)
			if unknown.code != 404 {
				t.Errorf("%s %s with %.20q: %d", r.method, r.path, id, unknown.code)
			}
			if id[0] == 'i' && id[1] == '0' && unknown.body != foreign.body {
				t.Errorf("%s %s: foreign %s, unknown %s", r.method, r.path, foreign.body, unknown.body)
			}
		}
	}
	f.do("GET", "/v2/sandboxes", "", "X-Api-Key", bobKey).want(t, "bob's list", 200, "[]")
	f.do("GET", "/sandboxes/"+m.ID, "").want(t, "the sandbox afterwards", 200, "")
}

func TestConnectOnlyExtends(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","timeout":600}`)
	end := func() time.Time {
		var d struct {
			EndAt time.Time `json:"endAt"`
		}
		f.do("GET", "/sandboxes/"+m.ID, "").decode(t, &d)
		return d.EndAt
	}
	was := end()
	a := f.do("POST", "/sandboxes/"+m.ID+"/connect", `{"timeout":60}`).want(t, "connect", 200, "")
	if !strings.Contains(a.body, m.Token) || !end().Equal(was) {
		t.Errorf("connect: %s, end moved from %s to %s", a.body, was, end())
	}
	f.do("POST", "/v2/sandboxes/"+m.ID+"/connect", "").want(t, "v2 connect", 200, "")
	f.do("POST", "/sandboxes/"+m.ID+"/refreshes", "").want(t, "refresh", 204, "")
	if !end().Equal(was) {
		t.Errorf("refresh moved the end to %s", end())
	}
	f.do("POST", "/v2/sandboxes/"+m.ID+"/connect", `{"timeout":3600}`).want(t, "v2 connect", 200, "")
	if d := end().Sub(was); d < 40*time.Minute {
		t.Errorf("the end moved by %s", d)
	}
	f.do("POST", "/sandboxes/"+m.ID+"/timeout", `{"timeout":30}`).want(t, "timeout", 204, "")
	if d := time.Until(end()); d > 31*time.Second {
		t.Errorf("the end is in %s", d)
	}
}

func TestList(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, f.create(fmt.Sprintf(`{"templateID":"base","metadata":{"n":"%d","k&=":"v w+%%"}}`, i)).ID)
	}
	type item struct {
		ID string `json:"sandboxID"`
	}
	list := func(query string) (string, http.Header) {
		t.Helper()
		var got []item
		a := f.do("GET", query, "").want(t, query, 200, "")
		a.decode(t, &got)
		var out []string
		for _, x := range got {
			out = append(out, strconv.Itoa(index(ids, x.ID)))
		}
		return strings.Join(out, ""), a.header
	}
	// Encoded like an SDK's filter: each part percent-encoded, then all as a form.
	filter := func(k, v string) string {
		return url.QueryEscape(url.Values{url.PathEscape(k): {url.PathEscape(v)}}.Encode())
	}
	tests := []struct{ query, want string }{
		{"/v2/sandboxes", "43210"},
		{"/v2/sandboxes?order=asc&limit=100", "01234"},
		{"/v2/sandboxes?state=running%2Cpaused", "43210"},
		{"/v2/sandboxes?state=running&state=paused", "43210"},
		{"/v2/sandboxes?state=paused", ""},
		{"/v2/sandboxes?template=standard", ""},
		{"/v2/sandboxes?startedAfter=2099-01-01T00:00:00Z", ""},
		{"/v2/sandboxes?startedAfter=2020-01-01T00:00:00Z", "43210"},
		{"/v2/sandboxes?metadata=" + filter("n", "3"), "3"},
		{"/v2/sandboxes?metadata=" + filter("k&=", "v w+%"), "43210"},
		{"/v2/sandboxes?metadata=" + filter("k&=", "v"), ""},
		{"/sandboxes?metadata=n%3D2", "2"},
		{"/sandboxes", "43210"},
	}
	for _, tt := range tests {
		if got, _ := list(tt.query); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.query, got, tt.want)
		}
	}
	all, token := "", ""
	for range 3 {
		page, h := list("/v2/sandboxes?limit=2&nextToken=" + token)
		all += page
		if h.Get("X-Total-Running") != "5" {
			t.Errorf("total %q", h.Get("X-Total-Running"))
		}
		token = h.Get("X-Next-Token")
		if (token == "") != (len(all) == 5) {
			t.Errorf("token %q after %q", token, all)
		}
	}
	if all != "43210" {
		t.Errorf("pages %q", all)
	}
	if _, h := list("/v2/sandboxes?state=paused"); h.Get("X-Total-Running") != "" {
		t.Error("X-Total-Running without running sandboxes in the list")
	}
}

func index(ids []string, id string) int {
	for i := range ids {
		if ids[i] == id {
			return i
		}
	}
	return -1
}
