package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/sandbox"
)

// head sends bytes on a connection of its own, and returns the status of the response.
func (f *fixture) head(request string) (int, http.Header) {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte(request)); err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		f.t.Fatalf("%.60q: %v", request, err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// Requests whose head differs from what clients send are rejected, with the headers of all answers.
func TestBackendAIMalformedHeads(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	req, err := http.NewRequest("GET", "http://"+f.addr+"/session/abcd", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.sign(req)
	signed := "Date: " + req.Header.Get("Date") + "\r\nX-BackendAI-Version: v4.20190615\r\nContent-Type: application/json\r\n"
	authorization := "Authorization: " + req.Header.Get("Authorization") + "\r\n"
	for name, head := range map[string]string{
		"two headers":         authorization + authorization,
		"a folded header":     strings.Replace(authorization, ", ", ",\r\n ", 1),
		"a folded signature":  strings.Replace(authorization, "credential=", "\r\n\tcredential=", 1),
		"8 KiB":               "Authorization: BackendAI signMethod=HMAC-SHA256, credential=" + strings.Repeat("x", 8<<10) + "\r\n",
		"a date in year 9999": strings.Replace(authorization, "Authorization", "Date: 9999-12-31T23:59:59Z\r\nAuthorization", 1),
	} {
		if code, _ := f.head("GET /session/abcd HTTP/1.1\r\nHost: " + f.addr + "\r\nConnection: close\r\n" + head + signed + "\r\n"); code != 400 && code != 401 && !(code == 404 && strings.Contains(name, "folded")) { // a fold is a space
			t.Errorf("%s: %d", name, code)
		}
	}
	for path, want := range map[string]int{"/session/%2e%2e/x": 404, "/session/a%2fb": 400, "/session/a%5cb": 400, "/session/a%00": 400, "//session/abcd": 401} {
		code, head := f.head("GET " + path + " HTTP/1.1\r\nHost: " + f.addr + "\r\nConnection: close\r\n\r\n")
		if code < 400 || code > 404 {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
		if path[1] != '/' && head.Get("X-RateLimit-Limit") == "" {
			t.Errorf("%s: no headers about the rate limit", path)
		}
	}
}

// Bodies and names that no client sends.
func TestBackendAIBadBodies(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	s.create("/session", `{"image":"base","name":"runs"}`, 201)
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, body := range []string{
		deep, `{"mode":` + deep + `}`, `{"mode":"query","options":` + deep + `}`, `{"mode":"query","code":NaN}`, "\ufeff" + `{"mode":"query"}`,
		`{"mode":"query"} x`, `{"mode":"query"}{}`, `{"mode":1e999}`, `{"mode":"query","options":[]}`, `{"mode":"batch","options":{"exec":{}}}`,
		`{"mode":null}`, `{"mode":["query"]}`, `{"mode":{}}`, `{"mode":true}`, `{"mode":"QUERY"}`, `{"mode":"query\u0000"}`,
	} {
		s.do("POST", "/session/runs", body).problem(t, fmt.Sprintf("%.60s", body), 400, "invalid-api-params")
	}
	for _, body := range []string{
		deep, `{"image":"base","name":"name1","config":` + deep + `}`, `{"image":"base","name":"name1"} x`, `{"image":"base","name":"name1","maxWaitSeconds":1e999}`,
		`{"image":"base","name":"name1","idleTimeout":-1}`, `{"image":"base","name":"name1","idleTimeout":1e18}`, `{"image":"base","name":"a.*.>b c"}`,
		`{"image":"base","name":"name\u0000"}`, `{"image":"base","name":"\ud800name"}`, `{"image":"base","name":"` + strings.Repeat("a", 65) + `"}`, `{"image":"base","name":"näme1"}`,
		`{"image":"base","name":"name1","type":["batch"]}`, `{"image":"base","name":"name1","enqueueOnly":"yes"}`, `{"image":"base","name":"name1","clusterSize":0}`,
		`{"image":"base","name":"name1","clusterSize":2147483648}`, `{"image":"base","name":"name1","config":{"resources":{"cpu":-1}}}`, `{"image":"base","name":"name1","config":{"resources":{"mem":"NaN"}}}`,
	} {
		s.do("POST", "/session", body).problem(t, fmt.Sprintf("%.80s", body), 400, "invalid-api-params")
	}
	for _, name := range []string{"a.b.c", "*", ">", "sbx.alice.>", "a b", "\r\nx: y", strings.Repeat("a", 4096), "ünïcode", "00000000-0000-0000-0000-000000000000"} {
		a := s.do("GET", "/session/"+url.PathEscape(name), "")
		if a.code != 404 && a.code != 400 {
			t.Errorf("%.40q: %d %s", name, a.code, a.body)
		}
	}
	for _, path := range []string{"../etc/passwd", "/etc/passwd", "a/../../b", "a\x00b", "", strings.Repeat("a/", 3000)} {
		s.do("GET", "/session/runs/download?files="+url.QueryEscape(path), "").problem(t, fmt.Sprintf("%.40q", path), 400, "invalid-api-params")
	}
	s.do("GET", "/session/runs/download?files=a&files=b&files=c&files=d&files=e&files=f", "").problem(t, "6 files", 400, "invalid-api-params")
	s.do("POST", "/session/runs/upload", `{}`).problem(t, "not a form", 400, "invalid-api-params")
}

// A message of more than 16 MiB closes a terminal, for its size or the number of its fragments, and
// nothing else.
func TestBackendAITooLargeFrame(t *testing.T) {
	f := newFixture(t)
	f.withShells()
	f.signer().create("/session", `{"image":"base","name":"term"}`, 201)
	one, two := f.signer().view("/stream/session/term/pty"), f.signer().view("/stream/session/term/pty")
	one.until("$ ")
	two.until("$ ")
	one.ws.WriteMessage(fws.TextMessage, []byte(`{"type":"stdin","chars":"`+strings.Repeat("A", 16<<20)+`"}`))
	if got := one.closed(); !strings.Contains(got, "1009") && !strings.Contains(got, "1008") && !strings.Contains(got, "reset") && !strings.Contains(got, "pipe") {
		t.Errorf("closed with %s", got)
	}
	two.stdin("x")
	two.until("x")
}

// B-015: a ping moves the deadline of a session, and a connection that sends nothing does not.
func TestBackendAIPing(t *testing.T) {
	f := newFixture(t)
	f.withShells()
	views := map[string]*view{}
	for _, name := range []string{"pinged", "silent"} {
		f.signer().create("/session", `{"image":"base","name":"`+name+`","idleTimeout":20}`, 201)
		views[name] = f.signer().view("/stream/session/" + name + "/pty")
		views[name].until("$ ")
	}
	deadline := func(name string) (at time.Time) {
		for _, st := range f.view.Sandboxes(func(s *sandbox.State) bool { return s.Request.Metadata["backendai.name"] == name }) {
			at = st.Deadline
		}
		return at
	}
	pinged, silent := deadline("pinged"), deadline("silent")
	poll, late := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for !deadline("pinged").After(pinged) {
		views["pinged"].send(fws.TextMessage, `{"type":"ping"}`)
		select {
		case <-poll.C:
		case <-late:
			t.Fatal("pings do not move the deadline")
		}
	}
	if got := deadline("silent"); !got.Equal(silent) {
		t.Errorf("the deadline moved from %v to %v without a message", silent, got)
	}
}

// B-021: a terminal whose shell has ended shows the next one.
func TestBackendAIShellEnds(t *testing.T) {
	f := newFixture(t)
	f.withShells()
	f.signer().create("/session", `{"image":"base","name":"term"}`, 201)
	v := f.signer().view("/stream/session/term/pty")
	v.until("$ ")
	f.signer().do("PATCH", "/session/term", "").want(t, "restart", 204, "")
	if got := v.until("$ "); got != "Restarting...\r\n$ " {
		t.Errorf("%q", got)
	}
}
