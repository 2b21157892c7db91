package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Errors that no handler returns have the form that the clients of each family expect.
func TestErrorsHaveTheFormOfTheirFamily(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	const (
		jsonUTF8 = "application/json; charset=utf-8"
		problem  = "application/problem+json"
		text     = "text/plain; charset=utf-8"
		noKey    = "unauthorized: a valid API key is required (X-API-KEY or Authorization: Bearer)"
	)
	large := strings.Repeat("x", 17<<20)
	none, bearer := []string{"X-Api-Key", ""}, []string{"X-Api-Key", "", "Authorization", "Bearer " + key}
	tests := []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		mime, want               string
	}{
		{"E2B: no key", "GET", "/sandboxes", "", none, 401, jsonUTF8, `{"code":401,"message":"` + noKey + `"}`},
		{"E2B: no route", "GET", "/nothing", "", nil, 404, jsonUTF8, `{"code":404,"message":"Cannot GET /nothing","error_code":"not_found"}`},
		{"E2B: internal route of envd", "POST", "/init", "", none, 404, jsonUTF8, `{"code":404,"message":"Cannot POST /init","error_code":"not_found"}`},
		{"E2B: no such method", "PUT", "/sandboxes", "", nil, 405, jsonUTF8, `{"code":405,"message":"Method Not Allowed","error_code":"method_not_allowed"}`},
		{"E2B: a large body", "POST", "/sandboxes", large, nil, 413, jsonUTF8, `{"code":413,"message":"Request Entity Too Large","error_code":"request_entity_too_large"}`},
		{"E2B: an ambiguous path", "GET", "/sandboxes/a%5cb", "", nil, 400, jsonUTF8, `{"code":400,"message":"encoded slash, backslash or NUL in the path","error_code":"bad_request"}`},
		{"volumes: no token", "GET", "/volumecontent/v1/path", "", none, 401, jsonUTF8, `{"code":"unauthenticated","message":"unauthorized: a valid volume token is required (Authorization: Bearer)"}`},
		{"volumes: no route", "GET", "/volumecontent/v1/nothing", "", nil, 404, jsonUTF8, `{"code":"not_found","message":"Cannot GET /volumecontent/v1/nothing"}`},
		{"volumes: a large body", "PATCH", "/volumecontent/v1/path", large, nil, 413, jsonUTF8, `{"code":"request_entity_too_large","message":"Request Entity Too Large"}`},
		{"ours: not for tenants", "GET", "/v1/hosts", "", []string{"X-Api-Key", bobKey}, 403, jsonUTF8, `{"code":403,"message":"operators only","error_code":"denied"}`},
		{"ours: no such method", "DELETE", "/livez", "", none, 405, jsonUTF8, `{"code":405,"message":"Method Not Allowed","error_code":"method_not_allowed"}`},
		{"ports: no sandbox", "GET", "/", "", []string{"Host", "3000-i0.localhost"}, 502, jsonUTF8, `{"sandboxId":"i0","message":"The sandbox was not found","code":502}`},

		{"e2a: no key", "GET", "/v1/sessions", "", none, 401, jsonUTF8, `{"error":"unauthenticated","message":"` + noKey + `"}`},
		{"e2a: no route", "GET", "/v1/sessions/x/y", "", bearer, 404, jsonUTF8, `{"error":"not_found","message":"Cannot GET /v1/sessions/x/y"}`},
		{"e2a: a template of ours", "GET", "/v1/templates/base", "", bearer, 404, jsonUTF8, `{"error":"template_not_found","message":"template not found"}`},
		{"e2a: signing up", "POST", "/v1/tenants", "{}", none, 400, jsonUTF8, `{"error":"invalid","message":"email is required"}`},
		{"e2a: signing up by another method", "PUT", "/v1/tenants", "{}", none, 405, jsonUTF8, `{"error":"method_not_allowed","message":"Method Not Allowed"}`},
		{"e2a: signing up with a large body", "POST", "/v1/tenants", large, none, 413, jsonUTF8, `{"error":"request_entity_too_large","message":"Request Entity Too Large"}`},
		{"e2a: a large body", "POST", "/v1/sessions", large, bearer, 413, jsonUTF8, `{"error":"request_entity_too_large","message":"Request Entity Too Large"}`},
		{"Backend.AI: no signature", "GET", "/session/x", "", none, 401, problem, `{"type":"https://api.backend.ai/probs/auth-failed","title":"Unauthorized","msg":"credential/signature mismatch"}`},
		{"Backend.AI: an API key", "GET", "/session/x", "", bearer, 400, problem, `{"type":"https://api.backend.ai/probs/invalid-auth-params","title":"Bad Request","msg":"the Authorization header is not one of the scheme BackendAI"}`},
		{"Backend.AI: a large body is not read", "POST", "/v4/kernel", large, none, 401, problem, `{"type":"https://api.backend.ai/probs/auth-failed","title":"Unauthorized","msg":"credential/signature mismatch"}`},
		{"Backend.AI: the version", "GET", "/v6", "", none, 200, "application/json", `{"version":"v4.20190615","manager":"v0"}`},
		{"Backend.AI: an ambiguous path", "GET", "/kernel/a%2fb", "", none, 400, problem, `{"type":"https://api.backend.ai/probs/generic-bad-request","title":"Bad Request","msg":"encoded slash, backslash or NUL in the path"}`},
		{"codex: no credentials", "GET", "/codex/" + m.ID, "", none, 401, text, ""},
		{"codex: a wrong token", "GET", "/codex/" + m.ID + "?token=x", "", none, 401, text, ""},
		{"codex: no upgrade", "GET", "/codex/" + m.ID + "?token=" + m.Token, "", none, 426, text, "this path serves WebSocket only\n"},
		{"codex: a page of another origin", "GET", "/codex/" + m.ID + "?token=" + m.Token, "", append(none, "Origin", "https://example.com"), 403, text, "requests from pages of other origins are not allowed\n"},
		{"codex: a page of our own", "GET", "/codex/" + m.ID + "?token=" + m.Token, "", append(none, "Origin", "http://"+f.addr), 426, text, ""},
	}
	for _, tt := range tests {
		a := f.do(tt.method, tt.path, tt.body, tt.headers...)
		a.want(t, tt.name, tt.code, tt.want)
		if got := a.header.Get("Content-Type"); got != tt.mime {
			t.Errorf("%s: content type %q, want %q", tt.name, got, tt.mime)
		}
		if tt.mime == text && (a.header.Get("Access-Control-Allow-Origin") != "" || !strings.HasSuffix(a.body, "\n")) {
			t.Errorf("%s: %v %q", tt.name, a.header, a.body)
		}
	}
}

// An upgrade at / is codex's; all else there is the index.
func TestUpgradesAtTheRoot(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	for name, tt := range map[string]struct {
		host, headers string
		want          int
	}{
		"no credentials":      {"x", "", 401},
		"a key":               {"x", "Authorization: Bearer " + key + "\r\n", 400},
		"a token":             {"x", "Authorization: Bearer " + m.Token + "\r\n", 101},
		"another origin":      {"x", "Authorization: Bearer " + key + "\r\nOrigin: https://example.com\r\n", 403},
		"an opaque origin":    {"x", "Authorization: Bearer " + key + "\r\nOrigin: null\r\n", 403},
		"our own origin":      {"x", "Authorization: Bearer " + m.Token + "\r\nOrigin: https://x\r\n", 101},
		"a sandbox's host":    {"49983-" + m.ID + ".localhost", "", 404},
		"a port of a sandbox": {"3000-i0.localhost", "", 502},
	} {
		request := "GET / HTTP/1.1\r\nHost: " + tt.host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + tt.headers + "\r\n"
		if codes, _ := f.raw(t, request); len(codes) != 1 || codes[0] != tt.want {
			t.Errorf("%s: %v, want %d", name, codes, tt.want)
		}
	}
}

// A request for a port that cannot be trusted gets an error of E2B's proxy.
func TestFramingErrorsHaveTheFormOfTheirFamily(t *testing.T) {
	f := newFixture(t)
	for host, want := range map[string]string{
		"x":                 `{"code":400,"message":"body length given twice","error_code":"bad_request"}`,
		"3000-i1.localhost": `{"sandboxId":"i1","message":"body length given twice","port":3000,"code":400}`,
	} {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(conn, "POST /sandboxes HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
			t.Errorf("%s: %s, %v; want %s", host, body, err, want)
		}
		conn.Close()
	}
}

// Scripts of any origin may use the families that need credentials which they set themselves.
func TestPreflightsDependOnTheFamily(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]int{"/sandboxes": 204, "/v1/events": 204, "/v1/sessions": 204, "/session": 204, "/codex/i1": 403} {
		a := f.do("OPTIONS", path, "", "X-Api-Key", "", "Origin", "https://example.com", "Access-Control-Request-Method", "POST")
		if allowed := a.header.Get("Access-Control-Allow-Origin"); a.code != want || (allowed == "*") != (want == 204) {
			t.Errorf("%s: %d, origin %q; want %d", path, a.code, allowed, want)
		}
	}
}

// ?sandbox= counts where it is part of a protocol only.
func TestTheSandboxInTheQuery(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	f.create(base) // or the only one would be chosen
	for path, want := range map[string]int{"/commands": 200, "/v1/processes": 200, "/metrics": 200, "/envs": 200} {
		f.do("GET", path+"?sandbox="+m.ID, "").want(t, path, want, "")
	}
	if a := f.do("GET", "/metrics?sandbox="+m.ID, ""); !strings.Contains(a.body, "mem_total_mib") {
		t.Errorf("the metrics of a sandbox: %s", a.body)
	}
	if a := f.do("GET", "/?sandbox="+m.ID, ""); !strings.Contains(a.body, `"name":"millrace"`) {
		t.Errorf("the index: %s", a.body)
	}
}
