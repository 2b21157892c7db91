package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

const list = "/process.Process/List"

// listProcesses sends an empty List, the cheapest request on the data plane.
func (f *fixture) listProcesses(headers ...string) answer {
	f.t.Helper()
	return f.do("POST", list, "{}", append([]string{"X-Api-Key", "", "Content-Type", "application/json"}, headers...)...)
}

func TestDataPlaneAuthorization(t *testing.T) {
	f := newFixture(t)
	secure := f.create(base)
	other, ended := f.create(base), f.create(base)
	f.do("DELETE", "/sandboxes/"+ended.ID, "").want(t, "delete", 204, "")
	var open createdSandbox
	f.do("POST", "/sandboxes", `{"templateID":"base","timeout":600}`).decode(t, &open)
	const refused = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}`
	gone := func(id string) string {
		return `{"sandboxId":"` + id + `","message":"The sandbox was not found","code":502}`
	}
	tests := []struct {
		name    string
		headers []string
		code    int
		body    string
	}{
		{"token", []string{"E2b-Sandbox-Id", secure.ID, "X-Access-Token", secure.Token}, 200, ""},
		{"API key", []string{"E2b-Sandbox-Id", secure.ID, "X-API-KEY", key}, 200, ""},
		{"API key as bearer", []string{"E2b-Sandbox-Id", secure.ID, "Authorization", "bearer " + key}, 200, ""},
		{"token, and basic for the user", []string{"E2b-Sandbox-Id", secure.ID, "X-Access-Token", secure.Token, "Authorization", "Basic dXNlcjo="}, 200, ""},
		{"nothing", []string{"E2b-Sandbox-Id", secure.ID}, 401, refused},
		{"wrong token", []string{"E2b-Sandbox-Id", secure.ID, "X-Access-Token", secure.Token + "0"}, 401, refused},
		{"another sandbox's token", []string{"E2b-Sandbox-Id", secure.ID, "X-Access-Token", other.Token}, 401, refused},
		{"wrong key", []string{"E2b-Sandbox-Id", secure.ID, "X-API-KEY", key + "0"}, 401, refused},
		{"no sandbox, no key", nil, 401, refused},
		{"not secure: the id is enough", []string{"E2b-Sandbox-Id", open.ID}, 200, ""},
		{"another tenant's key", []string{"E2b-Sandbox-Id", secure.ID, "X-API-KEY", bobKey}, 502, gone(secure.ID)},
		{"unknown sandbox", []string{"E2b-Sandbox-Id", "i0", "X-API-KEY", key}, 502, gone("i0")},
		{"unknown sandbox, no key", []string{"E2b-Sandbox-Id", "i0"}, 502, gone("i0")},
		{"unknown sandbox, another's token", []string{"E2b-Sandbox-Id", "i0", "X-Access-Token", other.Token}, 502, gone("i0")},
		{"an invalid id, no key", []string{"E2b-Sandbox-Id", "I.*"}, 502, gone("I.*")},
		{"ended sandbox, no key", []string{"E2b-Sandbox-Id", ended.ID}, 502, gone(ended.ID)},
		{"ended sandbox, another's token", []string{"E2b-Sandbox-Id", ended.ID, "X-Access-Token", other.Token}, 502, gone(ended.ID)},
		{"an invalid id", []string{"E2b-Sandbox-Id", "I.*", "X-API-KEY", key}, 502, gone("I.*")},
		{"legacy client id", []string{"E2b-Sandbox-Id", secure.ID + "-6532622b", "X-API-KEY", key}, 200, ""},
		{"port of the data plane", []string{"E2b-Sandbox-Id", secure.ID, "E2b-Sandbox-Port", "49983", "X-API-KEY", key}, 200, ""},
		{"another port", []string{"E2b-Sandbox-Id", secure.ID, "E2b-Sandbox-Port", "3000", "X-API-KEY", key}, 502,
			`{"sandboxId":"` + secure.ID + `","message":"The sandbox is running but port is not open","port":3000,"code":502}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.listProcesses(tt.headers...).want(t, list, tt.code, tt.body)
		})
	}
}

// Requests for a sandbox that does not exist get the response of E2B's proxy, which never
// requires a token.
func TestUnknownSandboxGetsProxyError(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	f.do("DELETE", "/sandboxes/"+m.ID, "").want(t, "delete", 204, "")
	for _, id := range []string{m.ID, "i0"} {
		gone := `{"sandboxId":"` + id + `","message":"The sandbox was not found","code":502}`
		for _, tt := range [][4]string{
			{"POST", "/process.Process/Start", "application/connect+json", "\x00\x00\x00\x00\x02{}"},
			{"POST", "/process.Process/Connect", "application/connect+json", "\x00\x00\x00\x00\x17{\"process\":{\"pid\":1}}  "},
			{"POST", "/process.Process/SendInput", "application/json", "{}"},
			{"POST", "/filesystem.Filesystem/Stat", "application/json", `{"path":"/"}`},
			{"POST", "/filesystem.Filesystem/WatchDir", "application/connect+json", "\x00\x00\x00\x00\x02{}"},
			{"GET", "/files?path=/x", "", ""},
			{"GET", "/files?path=/x&signature=v1_x", "", ""},
			{"POST", "/files?path=/x", "application/octet-stream", "x"},
			{"POST", "/files/compose", "application/json", "{}"},
			{"POST", "/execute", "application/json", `{"code":"1"}`},
			{"GET", "/contexts", "", ""},
			{"GET", "/envs", "", ""},
			{"GET", "/metrics", "", ""},
			{"GET", "/health", "", ""},
		} {
			for _, token := range []string{"", "wrong"} {
				a := f.do(tt[0], tt[1], tt[3], "X-Api-Key", "", "E2b-Sandbox-Id", id, "Content-Type", tt[2], "X-Access-Token", token)
				a.want(t, tt[0]+" "+tt[1]+" with token "+token, 502, gone)
			}
		}
	}
	f.do("GET", "/commands", "", "X-Api-Key", "", "E2b-Sandbox-Id", "i0").wantError(t, "commands", 404)
}

func TestControlPlaneAuthorization(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	tests := []struct {
		name    string
		headers []string
		query   string
		code    int
	}{
		{"X-API-KEY", []string{"X-API-KEY", key}, "", 200},
		{"x-api-key", []string{"x-api-key", key}, "", 200},
		{"bearer", []string{"X-Api-Key", "", "Authorization", "Bearer " + key}, "", 200},
		{"query", []string{"X-Api-Key", ""}, "?api_key=" + key, 401},
		{"nothing", []string{"X-Api-Key", ""}, "", 401},
		{"wrong", []string{"X-Api-Key", "e2b_0"}, "", 401},
		{"a sandbox's token", []string{"X-Api-Key", "", "X-Access-Token", m.Token, "E2b-Sandbox-Id", m.ID}, "", 401},
		{"basic", []string{"X-Api-Key", "", "Authorization", "Basic " + key}, "", 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := f.do("GET", "/v2/sandboxes"+tt.query, "", tt.headers...)
			if a.want(t, "list", tt.code, ""); tt.code != 200 {
				a.wantError(t, "list", tt.code)
			}
		})
	}
	none := []string{"X-Api-Key", ""}
	f.do("GET", "/v1/processes?api_key="+key, "", none...).want(t, "a key in the query of our own routes", 200, "")
	f.do("POST", "/commands?api_key="+key, "{}", none...).wantError(t, "a key in the query does not authorize writes", 401)
}

// TestHostSelectsTheSandbox covers N-002: the Host header selects the sandbox and its port.
func TestHostSelectsTheSandbox(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	tests := []struct {
		host string
		code int
	}{
		{"49983-" + m.ID + ".localhost:7300", 200},
		{"49983-" + m.ID + "-6532622b.e2b.app", 200},
		{"3000-" + m.ID + ".localhost", 502},
		{"49983-i0.localhost", 502},
		{"3000-i0.localhost", 502},
	}
	for _, tt := range tests {
		f.listProcesses("Host", tt.host, "X-Api-Key", key).want(t, tt.host, tt.code, "")
	}
	f.do("POST", list+"?sandbox="+m.ID, "{}", "Content-Type", "application/json").want(t, "query", 200, "")
	a := f.do("GET", "/v2/sandboxes", "", "Host", "3000-"+m.ID+".localhost")
	a.want(t, "the control plane at a sandbox's port", 502, "")
}

func TestHealthReportsWhetherASandboxRuns(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	none := []string{"X-Api-Key", "", "E2b-Sandbox-Id", m.ID, "E2b-Sandbox-Port", "49983"}
	f.do("GET", "/health", "", none...).want(t, "health", 204, "")
	f.do("DELETE", "/sandboxes/"+m.ID, "").want(t, "delete", 204, "")
	want := `{"sandboxId":"` + m.ID + `","message":"The sandbox was not found","code":502}`
	a := f.do("GET", "/health", "", none...).want(t, "health after its end", 502, want)
	if ct := a.header.Get("Content-Type"); ct != "application/json; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	f.listProcesses("E2b-Sandbox-Id", m.ID, "X-Access-Token", m.Token).want(t, "data plane after its end", 502, want)
}

func TestEnvdInternalRoutesAreNotFound(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	for _, path := range []string{"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		f.do("POST", path, "{}", "E2b-Sandbox-Id", m.ID, "X-Access-Token", m.Token).wantError(t, path, 404)
		f.do("POST", path, "{}", "Host", "49983-"+m.ID+".localhost").wantError(t, path, 404)
		f.do("POST", path, "{}").wantError(t, path, 404)
	}
}

// Errors of the code interpreter's contexts are plain text, which the SDK shows unchanged.
func TestInterpreterErrorsArePlainText(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	for _, tt := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/execute", `{"code":"1","context_id":"nope"}`, 404, "Context nope not found"},
		{"POST", "/execute", `{"code":"1","context_id":"c","language":"python"}`, 400, "Only one of context_id or language can be provided"},
		{"DELETE", "/contexts/nope", "", 404, "Context nope not found"},
		{"POST", "/contexts/nope/restart", "", 404, "Context nope not found"},
	} {
		a := f.do(tt.method, tt.path, tt.body, "E2b-Sandbox-Id", m.ID, "E2b-Sandbox-Port", "49999", "Content-Type", "application/json")
		if a.want(t, tt.path, tt.code, tt.want); a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: content type %q", tt.path, a.header.Get("Content-Type"))
		}
	}
}

func TestEnvdReportsEnvironmentAndMetrics(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","secure":true,"envVars":{"A":"1"}}`)
	for _, path := range []string{"/envs", "/metrics"} {
		for _, wrong := range []string{"", "wrong"} {
			a := f.do("GET", path, "", "X-Api-Key", "", "E2b-Sandbox-Id", m.ID, "X-Access-Token", wrong)
			a.want(t, path, 401, `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}`)
		}
		f.do("GET", path, "", "X-Api-Key", bobKey, "E2b-Sandbox-Id", m.ID).want(t, path+" of another's", 502, "")
	}
	in := []string{"X-Api-Key", "", "E2b-Sandbox-Id", m.ID, "X-Access-Token", m.Token}
	f.do("GET", "/envs", "", in...).want(t, "envs", 200, `{"A":"1","E2B_SANDBOX":"true","E2B_SANDBOX_ID":"`+m.ID+`","E2B_TEMPLATE_ID":"base"}`)
	var got map[string]float64
	a := f.do("GET", "/metrics", "", in...)
	if err := json.Unmarshal([]byte(a.body), &got); a.code != 200 || err != nil {
		t.Fatalf("%d %s", a.code, a.body)
	}
	for _, k := range []string{"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib", "mem_used_mib", "disk_used", "disk_total"} {
		if _, ok := got[k]; !ok {
			t.Errorf("no %s in %s", k, a.body)
		}
	}
	if got["ts"] < 1e9 {
		t.Errorf("ts %v", got["ts"])
	}
}

func TestCORS(t *testing.T) {
	f := newFixture(t)
	a := f.do("OPTIONS", list, "", "X-Api-Key", "", "Origin", "https://app.example",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-access-token")
	a.want(t, "preflight", 204, "")
	for k, want := range map[string]string{
		"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "authorization,x-access-token",
		"Access-Control-Allow-Credentials": "",
	} {
		if got := a.header.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	a = f.do("GET", "/v2/sandboxes", "", "Origin", "https://app.example")
	for _, name := range []string{"Content-Range", "Cache-Control", "X-Next-Token", "X-Total-Running", "Retry-After"} {
		if !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("%s is not exposed", name)
		}
	}
	a = f.do("GET", "/v2/sandboxes", "", "Origin", "https://app.example", "X-Api-Key", "")
	if a.code != 401 || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("scripts cannot read the 401: %v", a.header)
	}
}

func (f *fixture) run(m createdSandbox, cmd string, args ...string) {
	f.t.Helper()
	body := fmt.Sprintf(`{"process":{"cmd":%q,"args":["%s"]}}`, cmd, strings.Join(args, `","`))
	msg := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	a := f.do("POST", "/process.Process/Start", string(msg), "Content-Type", "application/connect+json", "E2b-Sandbox-Id", m.ID)
	if a.code != http.StatusOK || !strings.Contains(a.body, `"end"`) {
		f.t.Fatalf("run %s: %d %q", cmd, a.code, a.body)
	}
}

// TestCommandMetricNames covers C-040: the command metrics keep their exact names.
func TestCommandMetricNames(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	for _, cmd := range []string{"true", "true", "fail"} {
		f.run(m, cmd)
	}
	body := f.do("GET", "/metrics", "", "X-Api-Key", "").want(t, "metrics", 200, "").body
	for _, line := range []string{
		"coppice_commands_started_total 3",
		`coppice_commands_finished_total{status="ok"} 2`,
		`coppice_commands_finished_total{status="error"} 1`,
		`coppice_commands_finished_total{status="killed"} 0`,
		"coppice_commands_active 0",
		`millrace_hosts{state="alive"} 1`,
		`millrace_sandboxes{phase="running"} 1`,
		"millrace_view_caught_up 1",
		`millrace_build_info{go_version="` + runtime.Version() + `",role="gateway",version="v0"} 1`,
		"millrace_sandbox_create_seconds_count 1",
		"millrace_process_start_seconds_count 3",
		"millrace_process_first_byte_seconds_count 0",
		"millrace_sandbox_resume_seconds_count 0",
	} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	for _, name := range []string{"go_goroutines", "go_memstats_heap_inuse_bytes", "go_build_info", "millrace_http_requests_total", "millrace_streams_open", "millrace_websockets_open", "millrace_websockets_ended_total"} {
		if !strings.Contains(body, "\n# TYPE "+name+" ") {
			t.Errorf("no metric %s", name)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
		if fields := strings.Fields(line); line[0] != '#' && len(fields) != 2 {
			t.Errorf("line %q is not a sample", line)
		}
	}
}

// TestLogsHaveEveryLineInOrder covers C-021: a sandbox's logs contain every line, in order.
func TestLogsHaveEveryLineInOrder(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	f.run(m, "echo", "one", "err:two", "three")
	f.run(m, "echo", "four")
	var got struct {
		Logs []struct{ Line string } `json:"logs"`
		Ent  []struct {
			Level, Message string
			Fields         map[string]string
		} `json:"logEntries"`
	}
	f.do("GET", "/sandboxes/"+m.ID+"/logs", "").want(t, "logs", 200, "").decode(t, &got)
	var lines []string
	for _, l := range got.Logs {
		lines = append(lines, message(t, l.Line))
	}
	if s := strings.Join(lines, " "); s != "one err:two three four" {
		t.Errorf("lines %q", s)
	}
	if got.Ent[1].Fields["stream"] != "stderr" || got.Ent[1].Level != "error" || got.Ent[0].Fields["stream"] != "stdout" {
		t.Errorf("entries %+v", got.Ent)
	}
	var v2 struct {
		Logs []struct{ Message string } `json:"logs"`
	}
	f.do("GET", "/v2/sandboxes/"+m.ID+"/logs?direction=backward&limit=2", "").want(t, "v2 logs", 200, "").decode(t, &v2)
	if len(v2.Logs) != 2 || v2.Logs[0].Message != "four" || v2.Logs[1].Message != "three" {
		t.Errorf("v2 logs %+v", v2.Logs)
	}
	f.do("GET", "/v2/sandboxes/"+m.ID+"/logs?search=tw", "").decode(t, &v2)
	if len(v2.Logs) != 1 || v2.Logs[0].Message != "err:two" {
		t.Errorf("search %+v", v2.Logs)
	}
	f.do("DELETE", "/sandboxes/"+m.ID, "").want(t, "delete", 204, "")
	f.do("GET", "/sandboxes/"+m.ID+"/logs?limit=1", "").want(t, "logs outlive the sandbox", 200, "").decode(t, &got)
	if len(got.Logs) != 1 || message(t, got.Logs[0].Line) != "one" {
		t.Errorf("after the end: %+v", got.Logs)
	}
}

// message returns the message of a log line, an object in the format of E2B's CLI.
func message(t *testing.T, line string) string {
	t.Helper()
	var l struct{ Message string }
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		t.Errorf("%q: %v", line, err)
	}
	return l.Message
}
