package gateway_test

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway"
)

// newVM creates a sandbox at e2a's route and returns its vm_id.
func (f *fixture) newVM(credential, body string) string {
	f.t.Helper()
	m := f.as(credential, "POST", "/v1/sandboxes", body).object(f.t, "create", 201, "vm_id", "state", "host_port")
	if m["state"] != "running" || m["host_port"] != 49950.0 {
		f.t.Errorf("created %v", m)
	}
	return m["vm_id"].(string)
}

// vmState returns the folded record of a vm_id.
func (f *fixture) vmState(vm string) sandbox.State {
	f.t.Helper()
	st, ok := f.view.Sandbox(sandbox.ID(strings.TrimPrefix(vm, "sbx_")))
	if !ok {
		f.t.Fatalf("no record of %s", vm)
	}
	return st
}

const standard = `{"template":"standard"}`

// with returns the body of a valid create with more members.
func with(members string) string { return `{"template":"standard",` + members + `}` }

// E-007, E-009, E-054, E-058, E-070, E-071, E-075 to E-077, E-080, E-081, E-085, E-090, E-093, E-096:
// the life of a sandbox.
func TestE2ASandbox(t *testing.T) {
	f := newFixture(t)
	const list = "/v1/sandboxes"
	f.as(key, "GET", list, "").want(t, "an empty list", 200, "[]")
	vm := f.newVM(key, with(`"metadata":{"tag":"prod","n":1,"deep":{"b":[1, 2]},"user_id":"mallory","chat_session_id":"s","end_user_id":"e"}`))
	if !strings.HasPrefix(vm, "sbx_i") || len(vm) != 4+21 {
		t.Errorf("vm_id %q", vm)
	}
	metadata := map[string]any{"tag": "prod", "n": 1.0, "deep": map[string]any{"b": []any{1.0, 2.0}}, "user_id": gateway.DefaultTenant}
	want := map[string]any{"vm_id": vm, "state": "running", "vcpu": 1.0, "cpu_fraction": 0.5, "memory_mib": 512.0, "rootfs": "standard.ext4", "metadata": metadata}
	if got := f.as(key, "GET", list+"/"+vm, "").object(t, "get", 200); !reflect.DeepEqual(got, want) {
		t.Errorf("get: %v, want %v", got, want)
	}
	var all []map[string]any
	f.as(key, "GET", list, "").want(t, "list", 200, "").decode(t, &all)
	if len(all) != 1 || !reflect.DeepEqual(all[0], want) {
		t.Errorf("list: %v", all)
	}
	// E2B's routes have strings.
	var ours []struct{ Metadata map[string]string }
	f.do("GET", "/v2/sandboxes", "").want(t, "E2B's list", 200, "").decode(t, &ours)
	if len(ours) != 1 || !maps.Equal(ours[0].Metadata, map[string]string{"tag": "prod", "n": "1", "deep": `{"b":[1,2]}`, "user_id": gateway.DefaultTenant}) {
		t.Errorf("E2B's list: %v", ours)
	}
	f.as(bobKey, "GET", list, "").want(t, "another tenant's list", 200, "[]")
	for _, method := range []string{"GET", "DELETE"} {
		foreign := f.as(bobKey, method, list+"/"+vm, "")
		foreign.failed(t, method, 404, "not_found")
		for _, id := range []string{"sbx_i00000000000000000000", "i00000000000000000000", "sbx_", "sbx_A", strings.TrimPrefix(vm, "sbx_"), "sbx_sbx_i0", "sbx_" + strings.Repeat("i", 41)} {
			f.as(key, method, list+"/"+id, "").want(t, method+" "+id, 404, foreign.body)
		}
	}
	for _, method := range []string{"PUT", "PATCH"} {
		f.as(key, method, list+"/"+vm, "{}").failed(t, method, 405, "method_not_allowed")
	}
	// E-014: sandboxes have no WebSocket.
	f.do("GET", list+"/"+vm+"/ws", "", "X-Api-Key", "", "Authorization", "Bearer "+key, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==").failed(t, "ws", 404, "not_found")

	f.as(key, "DELETE", list+"/"+vm, "").want(t, "delete", 200, `{"vm_id":"`+vm+`","state":"destroyed"}`)
	f.as(key, "DELETE", list+"/"+vm, "").failed(t, "delete again", 404, "not_found")
	want["state"] = "destroyed"
	if got := f.as(key, "GET", list+"/"+vm, "").object(t, "get", 200); !reflect.DeepEqual(got, want) {
		t.Errorf("get after the end: %v", got)
	}
	f.as(key, "GET", list, "").want(t, "list", 200, "").decode(t, &all)
	if len(all) != 1 || all[0]["state"] != "destroyed" {
		t.Errorf("list after the end: %v", all)
	}
}

// E-003, E-005, E-060, E-086, E-094.
func TestE2ASandboxesNeedAKey(t *testing.T) {
	u := newUserFixture(t)
	you := u.signUp("you@example.com")
	for _, r := range []struct{ method, path string }{{"POST", ""}, {"GET", ""}, {"GET", "/sbx_i1"}, {"DELETE", "/sbx_i1"}} {
		for name, credential := range map[string]string{"none": "", "a wrong one": "e2a_live_x", "a user's token": you.Token} {
			u.as(credential, r.method, "/v1/sandboxes"+r.path, standard).failed(t, name+": "+r.method+r.path, 401, "unauthenticated")
		}
		u.do(r.method, "/v1/sandboxes"+r.path, standard).failed(t, "X-API-KEY", 401, "unauthenticated")
	}
	vm := u.newVM(you.APIKey, standard)
	m := u.as(you.APIKey, "GET", "/v1/sandboxes/"+vm, "").object(t, "get", 200)
	if user := m["metadata"].(map[string]any)["user_id"]; user != you.TenantID {
		t.Errorf("user_id %v, want %s", user, you.TenantID)
	}
	u.as(bobKey, "GET", "/v1/sandboxes/"+vm, "").failed(t, "another tenant", 404, "not_found")
	if all, _ := u.trail(t); len(all) == 0 || all[len(all)-1].Event != "cross_tenant_denied" || all[len(all)-1].Owner != you.TenantID {
		t.Errorf("the trail: %+v", all)
	}
}

// E-020 to E-033, E-036 to E-045, E-050 to E-056, E-063: what is rejected, with the status and a part
// of the text.
func TestE2ACreateRejects(t *testing.T) {
	f := newFixture(t)
	const agent = `"agent":"claude-code","llm_key":"k"`
	app := func(sets string) string { return `"app_json":{"name":"n","capability_sets":` + sets + `}` }
	const two = `[{"name":"s","agents":[{"name":"a"},{"name":"b"}]}]`
	type test struct {
		body string
		code int
		want string
	}
	tests := []test{
		{``, 400, "JSON object"}, {`[]`, 400, "JSON object"}, {`{`, 400, "JSON object"}, {`{"template":"standard"} x`, 400, "more than one"},
		{`{}`, 400, "template is required"}, {`{"template":""}`, 400, "template is required"}, {`{"template":null}`, 400, "template is required"}, {`{"template":1}`, 400, "template must be a string"},
		{`{"template":"zzz"}`, 501, "template"}, {`{"template":"Standard"}`, 501, "template"}, {`{"template":"standard","template":"standard"}`, 400, "twice"},
		{`{"template":"browser"}`, 503, "millrace template build browser"}, {`{"template":"cua"}`, 503, "millrace template build cua"}, {`{"template":"canvas"}`, 503, "millrace template build canvas"},

		{with(`"agent":"claude-code"`), 400, "llm_key is required"}, {with(`"agent":"zzz","llm_key":"k"`), 501, "agent"},
		{with(`"agent":"deictic","llm_key":"k"`), 400, "model is required"},
		{with(agent + `,"model":"gpt-5"`), 400, "claude"},
		{with(`"agent":"codex","llm_key":"k","model":"claude"`), 400, "gpt or o"},
		{`{"template":"browser",` + agent + `}`, 503, "millrace template build browser"}, {with(agent + `,"wire_version":3`), 400, "wire_version"},

		{with(`"wire_version":3`), 400, "1 or 2"}, {with(`"wire_version":0`), 400, "1 or 2"}, {with(`"wire_version":"2"`), 400, "1 or 2"},
		{with(`"workspace_enabled":true`), 400, "app_id is required"}, {with(`"workspace_enabled":true,"app_id":"a"`), 400, "capset_id is required"},
		{with(`"workspace_enabled":true,"app_id":"a","capset_id":"c/d"`), 400, "capset_id"}, {with(`"workspace_enabled":"x"`), 400, "workspace_enabled"},

		{with(app(two) + `,"wire_version":1`), 400, "multi-agent requires wire_version=2"},
		{with(app(`[{"agents":[{}]},{"agents":[{}]}]`) + `,"wire_version":1`), 400, "multi-agent requires wire_version=2"},
		{with(`"app_json":{"tools":["x"]}`), 400, "legacy"}, {with(`"app_json":{"system_prompt":"x","capability_sets":` + two + `}`), 400, "legacy"},
		{with(`"app_json":{}`), 400, "capability_sets"}, {with(`"app_json":"x"`), 400, "object"}, {with(app(`{}`)), 400, "capability_sets"}, {with(app(`[]`)), 400, "capability_sets"},
		{with(app(`["x"]`)), 400, "object"}, {with(app(`[{}]`)), 400, "agents"}, {with(app(`[{"agents":{}}]`)), 400, "agents"}, {with(app(`[{"agents":[1]}]`)), 400, "object"},
		{with(app(`[{"agents":[{"tools":"x"}]}]`)), 400, "tools"}, {with(app(`[{"agents":[{"name":1}]}]`)), 400, "name"},

		{with(`"persistence_url":"http://chat.example.com/"`), 400, "https"}, {with(`"persistence_url":"https://10.0.0.1/"`), 400, "public"},
		{with(`"persistence_url":"https://[::ffff:10.0.0.1]/"`), 400, "public"}, {with(`"persistence_url":"https://localhost/"`), 400, "public"},
		{with(`"persistence_auth_header":"a\r\nb: c"`), 400, "persistence_auth_header"}, {with(agent + `,"persistence_url":"http://x/"`), 400, "https"},

		{with(`"env_vars":{"A":1}`), 400, "env_vars"}, {with(`"env_vars":[]`), 400, "env_vars"}, {with(`"env_vars":{"A=B":"c"}`), 400, "A=B"}, {with(`"env_vars":{"":"c"}`), 400, "cannot be set"},
		{with(`"env_vars":{"A":"` + strings.Repeat("x", 257<<10) + `"}`), 400, "larger"},
		{with(`"metadata":[]`), 400, "metadata"}, {with(`"metadata":{"A":"` + strings.Repeat("x", 65<<10) + `"}`), 400, "larger"},
		{with(`"agent_cmd":"/bin/sh"`), 400, "agent_cmd"}, {with(`"agent_cmd":"home/user/x"`), 400, "agent_cmd"}, {with(`"agent_cmd":"/home/user/../bin/x"`), 400, "agent_cmd"},
		{with(`"agent_cmd":"/home/userx"`), 400, "agent_cmd"}, {with(`"agent_cmd":"/home/user/` + strings.Repeat("x", 502) + `"`), 400, "512"},
	}
	for _, field := range []string{"idle_timeout_seconds", "max_lifetime_seconds"} {
		for _, v := range []string{"0", "-1", "1.5", `"x"`, "1e99", "18446744073709551616", "true"} {
			tests = append(tests, test{with(`"` + field + `":` + v), 400, field})
		}
	}
	for _, name := range []string{
		"AGENT_TYPE", "LLM_KEY", "LLM_API_KEY", "LLM_MODEL", "TASK", "SESSION_ID", "AGENT_CMD", "AGENT_SESSION_MODE", "E2A_PERSISTENCE_URL",
		"E2A_PERSISTENCE_AUTH_HEADER", "WORKSPACE_USER_ID", "WORKSPACE_APP_ID", "WORKSPACE_CAPSET_ID", "WORKSPACE_MODE",
	} {
		for _, field := range []string{"env_vars", "agent_env"} {
			tests = append(tests, test{with(`"` + field + `":{"A":"b","` + name + `":"x"}`), 400, name})
		}
	}
	for _, tt := range tests {
		a := f.as(key, "POST", "/v1/sandboxes", tt.body)
		var e struct{ Error, Message string }
		if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.code != tt.code || e.Error == "" || !strings.Contains(e.Message, tt.want) {
			t.Errorf("%.100s: %d %s, want %d %q", tt.body, a.code, a.body, tt.code, tt.want)
		}
	}
	if n := len(f.view.Sandboxes(func(*sandbox.State) bool { return true })); n != 0 {
		t.Errorf("%d sandboxes were created", n)
	}
}

// E-025, E-032, E-034, E-035, E-039, E-042, E-044, E-050, E-053, E-056: what is accepted, and the times.
func TestE2ACreateAccepts(t *testing.T) {
	f := newFixture(t)
	const app = `"app_json":{"name":"My App","capability_sets":[{"name":"general","agents":[{"name":"primary","capability_name":"general","capability_description":"w","tools":["read_file"]}]}]}`
	const many = `"app_json":{"capability_sets":[{"agents":[{},{}]},{"agents":[{}]}]}`
	for _, tt := range []struct {
		members    string
		idle, life time.Duration
	}{
		{`"task":"t"`, time.Minute, 2 * time.Hour},
		{`"idle_timeout_seconds":5,"max_lifetime_seconds":30`, 5 * time.Second, 30 * time.Second},
		{`"idle_timeout_seconds":18446744073709551615,"max_lifetime_seconds":99999`, 2 * time.Hour, 2 * time.Hour},
		{`"max_lifetime_seconds":5,"wire_version":1,` + app, time.Minute, 5 * time.Second},
		{`"wire_version":2,` + many, time.Minute, 2 * time.Hour}, {many, time.Minute, 2 * time.Hour},
		{`"llm_key":"canary-key","agent_env":{"OPENAI_BASE_URL":"x"},"env_vars":{"ANTHROPIC_BASE_URL":"https://x/","MY_VAR":"canary-value"}`, time.Minute, 2 * time.Hour},
		{`"persistence_url":"https://8.8.8.8/persist","persistence_auth_header":"ApiKey canary-header"`, time.Minute, 2 * time.Hour},
		{`"agent_cmd":"/home/user/` + strings.Repeat("x", 501) + `","workspace_enabled":false,"app_id":"a","agent":"","unknown":[1]`, time.Minute, 2 * time.Hour},
	} {
		begin := time.Now()
		vm := f.newVM(key, with(tt.members))
		st := f.vmState(vm)
		s := &st.Request.Schedule
		if s.Idle != tt.idle || s.HardEnd.Before(begin.Add(tt.life)) || s.HardEnd.After(time.Now().Add(tt.life)) || s.Warning != min(10*time.Second, tt.life) || s.Lifetime != 0 {
			t.Errorf("%s: %+v", tt.members, s)
		}
		if want := st.Clamp(st.Started.Add(tt.idle)); !st.Deadline.Equal(want) {
			t.Errorf("%s: deadline %v, want %v", tt.members, st.Deadline, want)
		}
		if got := f.as(key, "GET", "/v1/sandboxes/"+vm, "").body; strings.Contains(got, "canary") {
			t.Errorf("%s: %s", tt.members, got)
		}
		f.as(key, "DELETE", "/v1/sandboxes/"+vm, "").want(t, "delete", 200, "")
	}
}

// E-046: a name that leads to an address that is not public.
func TestE2APersistenceNames(t *testing.T) {
	f := newFixture(t)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	f.view = eventstest.View(t, f.log)
	f.serve(gateway.Config{Listen: "127.0.0.1:0", Outbound: gateway.OutboundConfig{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, DNS: "127.0.0.1:1"}})
	for url, code := range map[string]int{"https://chat.example.com/persist": 201, "https://10.1.2.3/": 201, "https://10.2.0.1/": 400} {
		if a := f.as(key, "POST", "/v1/sandboxes", with(`"persistence_url":"`+url+`"`)); a.code != code {
			t.Errorf("%s: %d %s, want %d", url, a.code, a.body, code)
		}
	}
}

// E-061, E-062: no capacity, and no host.
func TestE2ACreateWithoutCapacity(t *testing.T) {
	f := newFixture(t)
	f.host.SetRefuse(kind.Exhausted)
	f.as(key, "POST", "/v1/sandboxes", standard).failed(t, "all hosts are full", 409, "exhausted")
	f.host.SetRefuse(kind.Unavailable)
	f.as(key, "POST", "/v1/sandboxes", standard).failed(t, "no host", 503, "unavailable")
	f.as(key, "GET", "/v1/sandboxes", "").want(t, "refused sandboxes are not listed", 200, "[]")
}

// E-072, E-074: silent hosts, and none.
func TestE2AListOfSilentHosts(t *testing.T) {
	f := newFixture(t)
	vm := f.newVM(key, standard)
	f.host.Lease(t.Context(), fleet.Lease{TTL: time.Nanosecond})
	var got struct {
		Sandboxes []map[string]any
		Partial   bool
	}
	f.as(key, "GET", "/v1/sandboxes", "").want(t, "a silent host", 200, "").decode(t, &got)
	if !got.Partial || len(got.Sandboxes) != 1 || got.Sandboxes[0]["vm_id"] != vm {
		t.Errorf("a silent host: %+v", got)
	}
	f.as(bobKey, "GET", "/v1/sandboxes", "").want(t, "a silent host without the caller's sandboxes", 200, "[]")
	f.as("e2a_x", "GET", "/v1/sandboxes", "").failed(t, "no key beside a silent host", 401, "unauthenticated") // E-073
	f.host.Lease(t.Context(), fleet.Lease{TTL: time.Hour})
	if a := f.as(key, "GET", "/v1/sandboxes", ""); !strings.HasPrefix(a.body, "[") {
		t.Errorf("a host that answers again: %s", a.body)
	}
	f.host.Lease(t.Context(), fleet.Lease{TTL: time.Hour, Gone: true})
	f.as(key, "GET", "/v1/sandboxes", "").failed(t, "no host", 503, "no_hosts")
}

// An Idempotency-Key makes several creates one, at e2a's and at E2B's route.
func TestE2AIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	create := func(key, body string) answer {
		return f.do("POST", "/v1/sandboxes", body, "X-Api-Key", "", "Authorization", "Bearer "+key, "Idempotency-Key", "k")
	}
	first := create(key, with(`"env_vars":{"A":"b"},"metadata":{"x":1}`)).want(t, "first", 201, "")
	create(key, `{"metadata":{"x":1},"env_vars":{"A":"b"},"template":"standard"}`).want(t, "again, in another order", 201, first.body)
	create(key, standard).failed(t, "another request", 409, "idempotency_key_reused")
	if other := create(bobKey, standard); other.code != 201 || other.body == first.body {
		t.Errorf("another tenant: %+v", other)
	}
	var same []string
	for range 2 {
		var m createdSandbox
		f.do("POST", "/sandboxes", base, "Idempotency-Key", "e2b").want(t, "E2B", 201, "").decode(t, &m)
		same = append(same, m.ID)
	}
	if same[0] != same[1] {
		t.Errorf("E2B: %v", same)
	}
}

// E-095: DELETE works in every phase, and states have e2a's names.
func TestE2AStates(t *testing.T) {
	f := newFixture(t)
	vm := f.newVM(key, with(`"metadata":{"pause":"ok"}`))
	id := strings.TrimPrefix(vm, "sbx_")
	f.do("POST", "/sandboxes/"+id+"/pause", "").want(t, "pause", 204, "")
	if m := f.as(key, "GET", "/v1/sandboxes/"+vm, "").object(t, "paused", 200); m["state"] != "paused" {
		t.Errorf("paused: %v", m)
	}
	f.as(key, "DELETE", "/v1/sandboxes/"+vm, "").want(t, "delete a paused one", 200, "")

	// One that no host has taken.
	boot := sandbox.NewID()
	if _, err := f.log.AppendSandbox(t.Context(), gateway.DefaultTenant, boot, 0, 1, sandbox.Requested{Template: "base", Metadata: map[string]string{"make": "never"}}); err != nil {
		t.Fatal(err)
	}
	if m := f.as(key, "GET", "/v1/sandboxes/sbx_"+string(boot), "").object(t, "creating", 200); m["state"] != "creating" || m["rootfs"] != "base.ext4" {
		t.Errorf("creating: %v", m)
	}
	f.as(key, "DELETE", "/v1/sandboxes/sbx_"+string(boot), "").want(t, "delete one that is created", 200, "")
	f.as(key, "GET", "/v1/sandboxes/sbx_"+string(boot), "").want(t, "get it", 200, "")

	var all []map[string]any
	f.as(key, "GET", "/v1/sandboxes", "").decode(t, &all)
	if len(all) != 2 || all[0]["state"] != "destroyed" || all[1]["state"] != "destroyed" {
		t.Errorf("list: %v", all)
	}
}
