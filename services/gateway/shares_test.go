package gateway_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/openapi"
)

// sharing is a fixture with a process and a second gateway.
type sharing struct {
	*fixture
	box            createdSandbox
	process, other string // two processes of the sandbox, which run until it ends
	first, second  string // addresses of the gateways
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{fixture: newFixture(t)}
	s.box = s.create(base)
	s.process, s.other, s.first = s.sleep(), s.sleep(), s.addr
	s.serve(gateway.Config{Listen: "127.0.0.1:0"})
	s.second, s.addr = s.addr, s.first
	return s
}

// sleep starts a process that runs until the sandbox ends.
func (s *sharing) sleep() string {
	s.t.Helper()
	return s.start(`{"cmd":"sleep","timeout_ms":0}`)
}

// start starts a command, given in JSON, and returns the id of its process.
func (s *sharing) start(command string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.addr+"/commands?sandbox="+s.box.ID, strings.NewReader(command))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if lines := bufio.NewScanner(resp.Body); !lines.Scan() || !strings.Contains(lines.Text(), `"start"`) {
		s.t.Fatalf("%d: first line %q", resp.StatusCode, lines.Text())
	}
	return resp.Header.Get("X-Process-Id")
}

type link struct {
	ID, Token, URL   string
	Process, Sandbox string
	Seq              uint64
	Expires          time.Time
}

// share makes a link.
func (s *sharing) share(body string) link {
	s.t.Helper()
	var l link
	s.do("POST", "/v1/shares", body).want(s.t, body, 201, "").decode(s.t, &l)
	return l
}

// look sends a request with the token of a link alone.
func (s *sharing) look(method, path, token string) answer {
	s.t.Helper()
	return s.do(method, path, "", "X-Api-Key", "", "Millrace-Share", token)
}

// A link made at one gateway permits reading its process at another one, and nothing else.
func TestSharesAreValidAtEveryGateway(t *testing.T) {
	s := newSharing(t)
	began := time.Now()
	one := s.share(`{"process":"` + s.process + `"}`)
	all := s.share(`{"sandbox":"` + s.box.ID + `","expires":"24h"}`)
	if one.URL != "/#/s/"+one.Token || one.Process != s.process || one.Sandbox != "" || all.Sandbox != s.box.ID {
		t.Errorf("%+v, %+v", one, all)
	}
	if d := one.Expires.Sub(began); d < 7*24*time.Hour || d > 7*24*time.Hour+time.Minute {
		t.Errorf("the default: expires in %s", d)
	}
	s.addr = s.second
	const unknown = "01jd0000000000000000000000-i0"
	missing := s.do("GET", "/v1/processes/"+unknown, "").want(t, "an unknown process", 404, "").body
	for _, tt := range []struct {
		name, path, token string
		code              int
		body              string
	}{
		{"the process", "/v1/processes/" + s.process, one.Token, 200, ""},
		{"its events", "/v1/processes/" + s.process + "/events?follow=0", one.Token, 200, ""},
		{"another process", "/v1/processes/" + s.other, one.Token, 404, missing},
		{"events of another process", "/v1/processes/" + s.other + "/events", one.Token, 404, missing},
		{"an unknown process", "/v1/processes/" + unknown, one.Token, 404, missing},
		{"another process of the sandbox", "/v1/processes/" + s.other + "/events?follow=0", all.Token, 200, ""},
		{"itself", "/v1/shares/self", one.Token, 200, fmt.Sprintf(`{"process":"%s","expires":"%s"}`, s.process, one.Expires.Format(time.RFC3339Nano))},
		{"no token", "/v1/processes/" + s.process, "", 401, ""},
		{"a wrong token", "/v1/processes/" + s.process, one.Token[:len(one.Token)-1] + "_", 401, ""},
	} {
		s.look("GET", tt.path, tt.token).want(t, tt.name, tt.code, tt.body)
	}
	list := s.do("GET", "/v1/shares", "").want(t, "list", 200, "")
	if !strings.Contains(list.body, one.ID) || !strings.Contains(list.body, all.ID) || strings.Contains(list.body, one.Token) {
		t.Errorf("list: %s", list.body)
	}
	s.do("GET", "/v1/shares", "", "X-Api-Key", bobKey).want(t, "another tenant's list", 200, "[]")
	s.do("DELETE", "/v1/shares/"+one.ID, "", "X-Api-Key", bobKey).want(t, "another tenant revokes", 404, "")
	s.look("GET", "/v1/shares/self", one.Token).want(t, "after that", 200, "")
}

// A link up to an event shows nothing after it.
func TestSharesUpToAnEvent(t *testing.T) {
	s := newSharing(t)
	l := s.share(`{"process":"` + s.process + `","seq":1}`)
	events := "/v1/processes/" + s.process + "/events"
	a := s.look("GET", events, l.Token).want(t, "events", 200, "")
	if strings.Count(a.body, "\n") != 1 || !strings.Contains(a.body, `"accepted"`) {
		t.Errorf("events: %s", a.body)
	}
	s.look("GET", events+"?after=2", l.Token).want(t, "after the end", 400, "")
	live := s.look("GET", "/v1/processes/"+s.process+"/screen/live", l.Token).want(t, "the live screen", 200, "")
	if strings.Count(live.body, "event: ") != 2 || !strings.Contains(live.body, "event: end\ndata: "+`{"seq":1,"status":"until","code":null}`) {
		t.Errorf("the live screen: %s", live.body)
	}
	if a := s.look("GET", "/v1/processes/"+s.process+"/text", l.Token); !strings.HasPrefix(a.body, `{"seq":1,"last":1,"ended":false,`) {
		t.Errorf("the text: %d %s", a.code, a.body)
	}
	s.do("DELETE", "/sandboxes/"+s.box.ID, "").want(t, "kill the sandbox", 204, "")
	if a := s.look("GET", "/v1/processes/"+s.process, l.Token); a.code != 200 || strings.Contains(a.body, "ended_at") {
		t.Errorf("the process: %d %s", a.code, a.body)
	}
	s.look("GET", events, l.Token).want(t, "events after the end", 200, a.body)
}

// An open stream ends when its link is revoked at another gateway or expires, and the token is invalid.
func TestOpenStreamsEndWithTheirLink(t *testing.T) {
	s := newSharing(t)
	for name, end := range map[string]func(link){
		"revoked": func(l link) { s.do("DELETE", "/v1/shares/"+l.ID, "").want(t, "revoke", 204, "") },
		"expired": func(link) {},
	} {
		expires := map[string]string{"revoked": "1h", "expired": "1s"}[name]
		l := s.share(`{"process":"` + s.process + `","expires":"` + expires + `"}`)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.second+"/v1/processes/"+s.process+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Millrace-Share", l.Token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines, last := bufio.NewScanner(resp.Body), ""
		if !lines.Scan() || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, lines.Text())
		}
		end(l)
		for lines.Scan() {
			last = lines.Text()
		}
		resp.Body.Close()
		if !strings.Contains(last, `"unauthenticated"`) {
			t.Errorf("%s: last line %q, %v", name, last, lines.Err())
		}
		for _, s.addr = range []string{s.second, s.first} {
			s.look("GET", "/v1/shares/self", l.Token).want(t, name, 401, "")
		}
	}
}

func TestSharesRejectBadInput(t *testing.T) {
	s := newSharing(t)
	for body, want := range map[string]int{
		`{}`:               400,
		`{"process":"x"}`:  404,
		`{"sandbox":"i0"}`: 404,
		`{"process":"` + s.process + `","sandbox":"` + s.box.ID + `"}`: 400,
		`{"sandbox":"` + s.box.ID + `","seq":1}`:                       400,
		`{"process":"` + s.process + `","seq":99}`:                     400,
		`{"process":"` + s.process + `","seq":-1}`:                     400,
		`{"process":"` + s.process + `","seq":"x"}`:                    400,
		`{"process":"` + s.process + `","expires":"2161h"}`:            400,
		`{"process":"` + s.process + `","expires":"-1h"}`:              400,
		`{"process":"` + s.process + `","expires":"0s"}`:               400,
		`{"process":"` + s.process + `","expires":"soon"}`:             400,
	} {
		s.do("POST", "/v1/shares", body).wantError(t, body, want)
	}
	s.do("POST", "/v1/shares", `{"process":"`+s.process+`"}`, "X-Api-Key", bobKey).wantError(t, "another tenant's process", 404)
	s.do("DELETE", "/v1/shares/x", "").wantError(t, "an invalid id", 404)
}

// onlookers are the routes that accept the token of a link.
var onlookers = []string{
	"GET /v1/processes/{id}", "GET /v1/processes/{id}/events", "GET /v1/processes/{id}/export.cast", "GET /v1/processes/{id}/screen",
	"GET /v1/processes/{id}/screen/live", "GET /v1/processes/{id}/search", "GET /v1/processes/{id}/text", "GET /v1/processes/{id}/timeline",
	"GET /v1/shares/self", "GET /v1/timeline/{sandbox}",
}

// Every other route of the gateway refuses the token of a link.
func TestRoutesRefuseTokensOfLinks(t *testing.T) {
	s := newSharing(t)
	token := s.share(`{"sandbox":"` + s.box.ID + `"}`).Token
	all, err := openapi.Routes()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("/processes/{id}", "/processes/"+s.process, "{sandbox}", s.box.ID, "{sandboxID}", s.box.ID, "{id}", s.box.ID, "{", "", "}", "")
	refused := 0
	for _, r := range all {
		path := names.Replace(r.Path)
		if path == "/metrics" { // on a loopback address it needs no credentials
			continue
		}
		if slices.Contains(onlookers, r.Method+" "+r.Path) || family.Of(family.Request{Path: path}).Credentials.Has(family.Public) {
			continue
		}
		if a := s.look(r.Method, path, token); a.code != 401 && a.code != 403 {
			t.Errorf("%s %s: %d %s", r.Method, path, a.code, a.body)
		}
		refused++
	}
	if refused < 100 {
		t.Errorf("only %d routes", refused)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.logs.String(), token) {
		t.Error("the log contains the token")
	}
}
