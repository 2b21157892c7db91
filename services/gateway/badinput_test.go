package gateway_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// badBody is an invalid request body and its headers.
type badBody struct {
	name, body string
	headers    []string
}

// gzipBomb is 64 MiB, compressed once: that takes seconds under the race detector.
var gzipBomb = sync.OnceValues(func() (string, error) { return gzipped(strings.Repeat("\x00", 64<<20)) })

// badBodies returns bodies that no route accepts; some routes accept an empty object.
func badBodies(t *testing.T) []badBody {
	t.Helper()
	bomb, err := gzipBomb()
	if err != nil {
		t.Fatal(err)
	}
	return []badBody{
		{"half an object", `{"path":"/a"`, nil},
		{"a list", `[]`, nil},
		{"a number", `7`, nil},
		{"a text", `"x"`, nil},
		{"two objects", `{} {}`, nil},
		{"wrong types", `{"path":7,"name":7,"value":7,"timeout":"x","duration":"x","count":"x","process":7,"watcherId":7,"data":7,"source_paths":7,"templateID":7,"code":7,"allowOut":7,"uid":"x","input":7,"tags":7,"target":7}`, nil},
		{"wrong types within", `{"path":{"a":1},"name":{"a":1},"value":[],"timeout":1e999,"duration":{},"count":[],"process":{"pid":"x","config":7},"watcherId":[],"data":{},"source_paths":[7],"templateID":[],"code":{},"allowOut":[{}],"mode":"x","metadata":7,"envVars":7,"tags":[7],"target":{},"memory":7}`, nil},
		{"too deep", strings.Repeat(`{"path":`, 100_000), nil},
		{"a deep list", `{"path":` + strings.Repeat("[", 200_000), nil},
		{"no UTF-8", "{\"path\":\"\xff\xfe\",\"name\":\"\xff\",\"value\":\"\xff\",\"templateID\":\"\xff\"}", nil},
		{"a byte order mark", "\xef\xbb\xbf{}x", nil},
		{"a bomb", bomb, []string{"Content-Encoding", "gzip"}},
		{"half a bomb", bomb[:len(bomb)/2], []string{"Content-Encoding", "gzip"}},
		{"an unknown coding", "{}", []string{"Content-Encoding", "zstd, br"}},
	}
}

func mustGzip(t *testing.T, s string) string {
	t.Helper()
	out, err := gzipped(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func gzipped(s string) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	err := z.Close()
	return b.String(), err
}

// maxAnswerTime is the maximum time for the response to an invalid request, on a busy machine.
const maxAnswerTime = 30 * time.Second

// send is do with a check that the response arrives in time.
func (f *fixture) send(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	begun := time.Now()
	a := f.do(method, path, body, headers...)
	if took := time.Since(begun); took > maxAnswerTime {
		t.Errorf("%s %s took %v", method, path, took)
	}
	return a
}

// refused fails unless a response reports a client error in the SDKs' format: with a code and
// a message.
func (a answer) refused(t *testing.T, what string) {
	t.Helper()
	var b struct {
		Code    any     `json:"code"`
		Message *string `json:"message"`
	}
	if a.code < 400 || a.code == 500 || a.code > 502 {
		t.Errorf("%s: %d %.200s", what, a.code, a.body)
		return
	}
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || b.Code == nil || b.Message == nil || *b.Message == "" {
		t.Errorf("%s: %d %.200s: no code and message", what, a.code, a.body)
	}
	if n, ok := b.Code.(float64); ok && int(n) != a.code {
		t.Errorf("%s: status %d, code %v", what, a.code, b.Code)
	}
	if b.Code == "internal" || b.Code == "unknown" {
		t.Errorf("%s: %.200s", what, a.body)
	}
}

// bodyRoutes are the routes of the control plane that read a body; ID stands for a sandbox's
// id.
var bodyRoutes = [...]string{
	"POST /sandboxes", "POST /v2/sandboxes", "POST /sandboxes/ID/connect", "POST /v2/sandboxes/ID/connect", "POST /sandboxes/ID/resume",
	"POST /sandboxes/ID/timeout", "POST /sandboxes/ID/refreshes", "POST /sandboxes/ID/pause", "POST /sandboxes/ID/fork",
	"POST /sandboxes/ID/snapshots", "PUT /sandboxes/ID/network", "POST /volumes", "POST /secrets", "POST /secrets/x",
	"POST /v3/templates", "POST /v2/templates", "POST /templates/tags", "DELETE /templates/tags", "PATCH /templates/x",
}

func TestControlPlaneRejectsBadBodies(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	for _, b := range badBodies(t) {
		for _, r := range bodyRoutes {
			method, path, _ := strings.Cut(strings.ReplaceAll(r, "ID", m.ID), " ")
			f.send(t, method, path, b.body, b.headers...).refused(t, b.name+": "+r)
		}
	}
	for _, r := range bodyRoutes[:2] {
		_, path, _ := strings.Cut(r, " ")
		f.send(t, "POST", path, "").refused(t, "nothing: "+r)
		f.send(t, "POST", path, `{"templateID":"base","metadata":{"a":"`+strings.Repeat("x", 2<<20)+`"}}`).refused(t, "too long: "+r)
	}
	f.wantUnchanged(t, m)
}

// Bodies with a coding are rejected where their length would not be known in advance: those
// that grow, and those that are not encoded at all, whose decoding error a process would get.
func TestEncodedBodiesAreRejected(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	in := []string{"E2b-Sandbox-Id", m.ID, "E2b-Sandbox-Port", "49999", "Content-Encoding", "gzip"}
	one := "/v1/processes/" + f.do("POST", "/commands", `{"cmd":"true"}`, in[:2]...).want(t, "start", 200, "").header.Get("X-Process-Id")
	for _, r := range []string{
		"/execute", "/contexts", "/commands", "/commands/1/kill", "/commands/1/resize", "/commands/1/stdin",
		one + "/signal", one + "/resize", one + "/stdin",
	} {
		for name, body := range map[string]string{"a bomb": mustGzip(t, strings.Repeat(" ", 1<<20)), "no gzip": "not gzip"} {
			if a := f.send(t, "POST", r, body, in...); a.code != http.StatusUnsupportedMediaType && !(a.code == http.StatusNotFound && strings.Contains(r, "/1/")) {
				t.Errorf("%s: POST %s: %d %.100s", name, r, a.code, a.body)
			}
		}
	}
	f.wantUnchanged(t, m)
}

// wantUnchanged fails unless the one sandbox that was created is unchanged.
func (f *fixture) wantUnchanged(t *testing.T, m createdSandbox) {
	t.Helper()
	var all []struct{ SandboxID, State string }
	f.do("GET", "/v2/sandboxes", "").want(t, "list", 200, "").decode(t, &all)
	if len(all) != 1 || all[0].SandboxID != m.ID || all[0].State != "running" {
		t.Errorf("sandboxes left: %+v", all)
	}
	f.run(m, "true")
}

// unaryMethods are the unary methods of the data plane.
var unaryMethods = [...]string{
	"/process.Process/List", "/process.Process/SendInput", "/process.Process/SendSignal", "/process.Process/CloseStdin", "/process.Process/Update",
	"/filesystem.Filesystem/Stat", "/filesystem.Filesystem/MakeDir", "/filesystem.Filesystem/Move", "/filesystem.Filesystem/ListDir",
	"/filesystem.Filesystem/Remove", "/filesystem.Filesystem/Write", "/filesystem.Filesystem/CreateWatcher",
	"/filesystem.Filesystem/GetWatcherEvents", "/filesystem.Filesystem/RemoveWatcher",
}

func TestUnaryCallsRejectBadMessages(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	in := []string{"E2b-Sandbox-Id", m.ID, "Content-Type", "application/json"}
	for _, path := range unaryMethods {
		for _, b := range badBodies(t) {
			if strings.HasSuffix(path, "/List") && strings.HasPrefix(b.name, "wrong types") {
				continue // it has no fields, and ignores unknown ones
			}
			f.send(t, "POST", path, b.body, append(b.headers, in...)...).refused(t, b.name+": "+path)
		}
		f.send(t, "POST", path, "\xff\xff\xff", "E2b-Sandbox-Id", m.ID, "Content-Type", "application/proto").refused(t, "no protobuf: "+path)
		f.send(t, "POST", path, `{"path":"`+strings.Repeat("x", 5<<20)+`"}`, in...).refused(t, "too long: "+path)
		for _, ct := range []string{"text/plain", "application/connect+json", ""} {
			f.send(t, "POST", path, "{}", "E2b-Sandbox-Id", m.ID, "Content-Type", ct).refused(t, "content type "+ct+": "+path)
		}
		for _, id := range []string{"inone", "i.*", "..", ">", "i%00", strings.Repeat("i", 500)} {
			f.send(t, "POST", path, `{"path":"/a","watcherId":"w1","process":{"pid":1},"destination":"/b","source":"/a"}`,
				"E2b-Sandbox-Id", id, "Content-Type", "application/json").refused(t, "sandbox "+id+": "+path)
		}
		for _, h := range [][2]string{{"Connect-Protocol-Version", "2"}, {"Connect-Timeout-Ms", "-1"}, {"Connect-Timeout-Ms", "99999999999"}, {"X-Process-Id", "../x"},
			{"Authorization", "Basic ***"}, {"Idempotency-Key", strings.Repeat("k", 4096)}} {
			f.send(t, "POST", path, "{}", append(in, h[0], h[1])...).refused(t, h[0]+" "+h[1][:min(9, len(h[1]))]+": "+path)
		}
		if a := f.send(t, "GET", path, "", in...); a.code != 404 && a.code != 405 {
			t.Errorf("GET %s: %d", path, a.code)
		}
	}
	f.wantUnchanged(t, m)
}

func frameOf(flags byte, length uint32, payload string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, length)) + payload
}

func envelope(flags byte, payload string) string {
	return frameOf(flags, uint32(len(payload)), payload)
}

// A stream's error is in its last envelope, if the request gets that far.
func TestStreamsRejectBadMessages(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	bomb, err := gzipBomb()
	if err != nil {
		t.Fatal(err)
	}
	const start = `{"process":{"cmd":"true"}}`
	in := []string{"E2b-Sandbox-Id", m.ID, "Content-Type", "application/connect+json"}
	for _, method := range []string{"/process.Process/Start", "/process.Process/Connect", "/process.Process/StreamInput", "/filesystem.Filesystem/WatchDir"} {
		for _, b := range []badBody{
			{"nothing", "", nil},
			{"half a head", "\x00\x00\x00", nil},
			{"half a message", frameOf(0, 100, `{"process"`), nil},
			{"a message of 4 GiB", frameOf(0, 1<<32-1, start), nil},
			{"a message past the limit", envelope(0, `{"path":"`+strings.Repeat("x", 5<<20)+`"}`), nil},
			{"unknown flags", envelope(0xff, start), nil},
			{"flags of the end", envelope(2, "{}"), nil},
			{"marked as compressed", envelope(1, start), nil},
			{"no gzip", envelope(1, start), []string{"Connect-Content-Encoding", "gzip"}},
			{"a bomb", envelope(1, bomb), []string{"Connect-Content-Encoding", "gzip"}},
			{"an unknown coding", envelope(1, start), []string{"Connect-Content-Encoding", "zstd"}},
			{"no object", envelope(0, `[]`), nil},
			{"half an object", envelope(0, `{"process":`), nil},
			{"wrong types", envelope(0, `{"process":7,"path":7,"start":7}`), nil},
			{"too deep", envelope(0, strings.Repeat(`{"process":`, 50_000)), nil},
			{"no UTF-8", envelope(0, "{\"path\":\"\xff\",\"process\":{\"cmd\":\"\xff\"}}"), nil},
			{"an empty message", envelope(0, ""), nil},
			{"an empty object", envelope(0, "{}"), nil},
			{"no protobuf", envelope(0, "\xff\xff"), []string{"Content-Type", "application/connect+proto"}},
			{"a plain text", "x", []string{"Content-Type", "text/plain"}},
			{"an unknown sandbox", envelope(0, start), []string{"E2b-Sandbox-Id", "inone"}},
			{"an invalid sandbox id", envelope(0, start), []string{"E2b-Sandbox-Id", "../*"}},
			{"an invalid position", envelope(0, `{"process":{"pid":1,"cmd":"true"},"path":"/"}`), []string{"X-Replay-From", "-1", "X-Process-Id", "x"}},
		} {
			if strings.HasPrefix(b.name, "an empty ") && strings.HasSuffix(method, "/WatchDir") {
				continue // without a path it is the user's home
			}
			a := f.send(t, "POST", method, b.body, append(append([]string{}, in...), b.headers...)...)
			what := b.name + ": " + method
			if a.code != http.StatusOK {
				a.refused(t, what)
				continue
			}
			wantEnd(t, what, a.body)
		}
	}
	f.wantUnchanged(t, m)
}

// wantEnd fails unless a stream is one envelope with an error.
func wantEnd(t *testing.T, what, body string) {
	t.Helper()
	var end struct {
		Error *struct{ Code, Message string }
	}
	if len(body) < 5 || body[0] != 2 || int(binary.BigEndian.Uint32([]byte(body[1:5]))) != len(body)-5 {
		t.Errorf("%s: %.100q", what, body)
		return
	}
	if err := json.Unmarshal([]byte(body[5:]), &end); err != nil || end.Error == nil || end.Error.Code == "" || end.Error.Message == "" {
		t.Errorf("%s: %q", what, body[5:])
	} else if end.Error.Code == "internal" && !strings.HasPrefix(end.Error.Message, "protocol error") { // Connect's own code for protocol errors
		t.Errorf("%s: %q", what, body[5:])
	}
}

// On every route an id that is unknown, invalid, or another tenant's is not found, with the
// same response.
func TestUnknownIDsAreNotFound(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	bobs := []string{"X-Api-Key", bobKey}
	routes := []struct{ method, path, body string }{
		{"GET", "/sandboxes/ID", ""}, {"DELETE", "/sandboxes/ID", ""}, {"POST", "/sandboxes/ID/connect", `{"timeout":1}`},
		{"POST", "/v2/sandboxes/ID/connect", `{}`}, {"POST", "/sandboxes/ID/resume", `{}`}, {"POST", "/sandboxes/ID/timeout", `{"timeout":1}`},
		{"POST", "/sandboxes/ID/refreshes", `{}`}, {"POST", "/sandboxes/ID/pause", `{}`}, {"POST", "/sandboxes/ID/fork", `{}`},
		{"POST", "/sandboxes/ID/snapshots", `{}`}, {"PUT", "/sandboxes/ID/network", `{}`}, {"GET", "/sandboxes/ID/metrics", ""},
		{"GET", "/sandboxes/ID/logs", ""}, {"GET", "/v2/sandboxes/ID/logs", ""}, {"GET", "/volumes/ID", ""}, {"DELETE", "/volumes/ID", ""},
		{"GET", "/secrets/ID", ""}, {"POST", "/secrets/ID", `{"value":"x"}`}, {"DELETE", "/secrets/ID", ""},
		{"DELETE", "/templates/ID", ""}, {"GET", "/templates/aliases/ID", ""},
	}
	f.do("POST", "/secrets", `{"name":"mine","value":"canary"}`).want(t, "a secret", 201, "")
	for _, r := range routes {
		at := func(id string) string { return strings.ReplaceAll(r.path, "ID", id) }
		for _, id := range []string{"inone", "i.x", "*", "%3E", "%2e%2e", "i%20x", "i%0d%0ax", strings.Repeat("i", 300), "%F0%9F%98%80"} {
			a := f.send(t, r.method, at(id), r.body)
			if a.refused(t, r.method+" "+at(id)); a.code != 404 && a.code != 400 {
				t.Errorf("%s %s: %d", r.method, at(id), a.code)
			}
		}
		id := m.ID
		if strings.HasPrefix(r.path, "/secrets") {
			id = "mine"
		}
		theirs, none := f.send(t, r.method, at(id), r.body, bobs...), f.send(t, r.method, at("inone"), r.body, bobs...)
		if theirs.code != 404 || strings.ReplaceAll(theirs.body, id, "inone") != none.body {
			t.Errorf("%s %s, another tenant's id: %d %s, unknown id: %d %s", r.method, r.path, theirs.code, theirs.body, none.code, none.body)
		}
	}
	for _, path := range append(unaryMethods[:], "/process.Process/Start", "/filesystem.Filesystem/WatchDir") {
		a := f.send(t, "POST", path, "{}", "E2b-Sandbox-Id", m.ID, "Content-Type", "application/json", "X-Api-Key", bobKey)
		if a.code != 502 && a.code != 415 {
			t.Errorf("%s of another's: %d %s", path, a.code, a.body)
		}
	}
	f.do("GET", "/secrets/mine", "").want(t, "the secret after that", 200, "")
	f.wantUnchanged(t, m)
}

// Invalid queries are rejected.
func TestBadQueries(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	in := []string{"E2b-Sandbox-Id", m.ID}
	long := strings.Repeat("x", 5000)
	for _, path := range []string{
		"/v2/sandboxes?limit=0", "/v2/sandboxes?limit=-1", "/v2/sandboxes?limit=1e3", "/v2/sandboxes?limit=99999999999999999999", "/v2/sandboxes?state=dead",
		"/v2/sandboxes?order=up", "/v2/sandboxes?nextToken=***", "/v2/sandboxes?nextToken=AAAA", "/v2/sandboxes?startedAfter=now", "/v2/sandboxes?metadata=%25zz",
		"/snapshots?limit=x", "/snapshots?nextToken=%00", "/secrets?limit=101", "/secrets?nextToken=!", "/sandboxes/metrics?sandbox_ids=..",
		"/sandboxes/" + m.ID + "/metrics?start=x", "/sandboxes/" + m.ID + "/metrics?start=9&end=1", "/sandboxes/" + m.ID + "/metrics?start=1700000000000",
		"/sandboxes/" + m.ID + "/logs?start=9223372036854775807", "/sandboxes/" + m.ID + "/logs?limit=-1",
		"/v2/sandboxes/" + m.ID + "/logs?direction=up", "/files?path=" + long, "/files?path=%00", "/files?path=a&username=" + long, "/files?path=a&username=%00",
	} {
		f.send(t, "GET", path, "", in...).refused(t, "GET "+path[:min(60, len(path))])
	}
	for _, b := range []badBody{
		{"no type", "x", nil},
		{"another type", "x", []string{"Content-Type", "text/plain"}},
		{"a form without a boundary", "x", []string{"Content-Type", "multipart/form-data"}},
		{"an invalid form", "x", []string{"Content-Type", "multipart/form-data; boundary=b"}},
		{"a form cut short", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a\"\r\n\r\nx", []string{"Content-Type", "multipart/form-data; boundary=b"}},
		{"a part without a name", "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n", []string{"Content-Type", "multipart/form-data; boundary=b"}},
		{"no path", "x", []string{"Content-Type", "application/octet-stream"}},
		{"no gzip", "x", []string{"Content-Type", "application/octet-stream", "Content-Encoding", "gzip"}},
		{"an unknown coding", "x", []string{"Content-Type", "application/octet-stream", "Content-Encoding", "br"}},
		{"long metadata", "x", []string{"Content-Type", "application/octet-stream", "X-Metadata-A", long}},
	} {
		f.send(t, "POST", "/files", b.body, append(b.headers, in...)...).refused(t, b.name)
	}
	for _, b := range badBodies(t) {
		if len(b.headers) == 0 { // the route ignores codings
			f.send(t, "POST", "/files/compose", b.body, append(b.headers, in...)...).refused(t, "compose: "+b.name)
		}
	}
	f.do("POST", "/files/compose", fmt.Sprintf(`{"source_paths":["a"],"destination":%q}`, long), in...).refused(t, "compose: a long path")
	f.wantUnchanged(t, m)
}
