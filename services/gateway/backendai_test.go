package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/gateway/internal/backendai/signature"
)

const (
	pairKey    = "AKIAIOSFODNN7EXAMPLE"
	pairSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	bobPairKey = "AKIABOB"
)

// pairs are the key pairs of the fixture.
func pairs(accessKey string) (tenant, secret string, ok bool) {
	switch accessKey {
	case pairKey:
		return "alice", pairSecret, true
	case bobPairKey:
		return "bob", pairSecret, true
	}
	return "", "", false
}

// signer sends signed requests to a gateway.
type signer struct {
	t             *testing.T
	addr          string
	key, version  string
	scheme, mime  string
	noContentType bool
}

func (f *fixture) signer() *signer {
	return &signer{t: f.t, addr: f.addr, key: pairKey, version: "v4.20190615", scheme: "BackendAI", mime: "application/json"}
}

// sign adds the headers of a signed request.
func (s *signer) sign(req *http.Request) {
	date := time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")
	if !s.noContentType {
		req.Header.Set("Content-Type", s.mime)
	}
	req.Header.Set("Date", date)
	req.Header.Set("X-BackendAI-Version", s.version)
	r := signature.Request{
		Method: req.Method, Target: req.URL.RequestURI(), Host: s.addr, ContentType: req.Header.Get("Content-Type"), Version: s.version, Date: date,
	}
	at, err := signature.ParseDate(date)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", s.scheme+" signMethod=HMAC-SHA256, credential="+s.key+":"+r.Sign("HMAC-SHA256", pairSecret, at))
}

func (s *signer) do(method, path, body string) answer {
	s.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.sign(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(raw)}
}

// created is the response to a request that creates a session.
type created struct {
	KernelID, SessionID, SessionName, Status string
	ServicePorts                             []struct{ Name, Protocol string }
	Created                                  bool
}

func (s *signer) create(path, body string, want int) created {
	s.t.Helper()
	a := s.do("POST", path, body)
	var c created
	if err := json.Unmarshal([]byte(a.body), &c); err != nil || a.code != want {
		s.t.Fatalf("POST %s %s: %d %s, want %d", path, body, a.code, a.body, want)
	}
	return c
}

// problem checks that an answer is a problem of a type.
func (a answer) problem(t *testing.T, what string, code int, name string) {
	t.Helper()
	var p struct{ Type, Title string }
	err := json.Unmarshal([]byte(a.body), &p)
	if err != nil || a.code != code || p.Type != "https://api.backend.ai/probs/"+name || p.Title == "" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %d %s, want %d %s", what, a.code, a.body, code, name)
	}
}

// B-024: the version, without credentials.
func TestBackendAIVersion(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/", "/v4", "/v9"} {
		a := f.do("GET", path, "", "X-Api-Key", "")
		var v struct{ Version, Manager string }
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.code != 200 || v.Version <= "v4.20181215" || !strings.HasPrefix(v.Version, "v4.") || v.Manager != "v0" {
			t.Errorf("GET %s: %d %s", path, a.code, a.body)
		}
	}
	for _, path := range []string{"/", "/v4", "/session/none"} {
		if a := f.do("GET", path, "", "X-Api-Key", ""); a.header.Get("Server") != "millrace" || a.header.Get("X-RateLimit-Limit") != "1000" {
			t.Errorf("GET %s: %v", path, a.header)
		}
	}
	f.do("GET", "/v10", "", "X-Api-Key", "").want(t, "GET /v10", 401, "")
}

// B-004, B-023, B-033, B-034: which requests are rejected, and how.
func TestBackendAIAuthentication(t *testing.T) {
	f := newFixture(t)
	const missing = "/session/nothing"
	for name, tt := range map[string]struct {
		change func(*signer)
		path   string
		code   int
		slug   string
	}{
		"signed":                {func(*signer) {}, missing, 404, "object-not-found"},
		"the oldest version":    {func(s *signer) { s.version = "v4.20181215" }, missing, 404, "object-not-found"},
		"the newest version":    {func(s *signer) { s.version = "v8.20240315" }, missing, 404, "object-not-found"},
		"Sorna":                 {func(s *signer) { s.scheme = "Sorna" }, missing, 404, "object-not-found"},
		"no content type":       {func(s *signer) { s.noContentType = true }, missing, 404, "object-not-found"},
		"multipart":             {func(s *signer) { s.mime = "multipart/form-data; boundary=x" }, missing, 404, "object-not-found"},
		"a query":               {func(*signer) {}, missing + "?forced=true&a=%20b", 404, "object-not-found"},
		"an escaped name":       {func(*signer) {}, "/kernel/a%20b", 404, "object-not-found"},
		"a prefix":              {func(*signer) {}, "/v6/kernel/nothing", 404, "object-not-found"},
		"no route":              {func(*signer) {}, "/session/a/b/c", 404, "url-not-found"},
		"announcements":         {func(*signer) {}, "/manager/announcement", 404, "url-not-found"},
		"virtual folders":       {func(*signer) {}, "/folders", 404, "url-not-found"},
		"configuration":         {func(*signer) {}, "/config/resource-slots", 404, "url-not-found"},
		"an unknown key":        {func(s *signer) { s.key = "AKIA" }, missing, 401, "auth-failed"},
		"another scheme":        {func(s *signer) { s.scheme = "Basic" }, missing, 400, "invalid-auth-params"},
		"too old a version":     {func(s *signer) { s.version = "v4.20180101" }, missing, 400, "generic-bad-request"},
		"not a version":         {func(s *signer) { s.version = "4" }, missing, 400, "generic-bad-request"},
		"an unknown connection": {func(*signer) {}, "/stream/session/nothing/nothing", 404, "url-not-found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := f.signer()
			tt.change(s)
			a := s.do("GET", tt.path, "")
			a.problem(t, name, tt.code, tt.slug)
			for _, h := range []string{"Limit", "Remaining", "Window"} {
				if n, err := strconv.Atoi(a.header.Get("X-RateLimit-" + h)); err != nil || n <= 0 {
					t.Errorf("X-RateLimit-%s: %v", h, a.header)
				}
			}
		})
	}
	a, b := f.signer().do("GET", missing, ""), f.signer().do("GET", missing, "")
	first, _ := strconv.Atoi(a.header.Get("X-RateLimit-Remaining"))
	second, _ := strconv.Atoi(b.header.Get("X-RateLimit-Remaining"))
	if second != first-1 || a.header.Get("X-RateLimit-Window") != "900" {
		t.Errorf("%d requests are left, then %d", first, second)
	}
	f.signer().do("POST", missing+"/nothing", "{}").problem(t, "POST", 404, "url-not-found")
	f.signer().do("PUT", "/session", "{}").problem(t, "PUT", 405, "method-not-allowed")
}

// Two Authorization headers and a date out of range are rejected.
func TestBackendAIAmbiguousRequests(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	for name, change := range map[string]func(*http.Request){
		"two headers":      func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) },
		"an old date":      func(r *http.Request) { r.Header.Set("Date", "2001-01-01T00:00:00Z") },
		"a date in year 0": func(r *http.Request) { r.Header.Set("Date", "0000-01-01T00:00:00Z") },
		"no date":          func(r *http.Request) { r.Header.Del("Date") },
		"a folded header":  func(r *http.Request) { r.Header.Set("Authorization", "BackendAI signMethod=HMAC-SHA256,") },
		"a long credential": func(r *http.Request) {
			r.Header.Set("Authorization", "BackendAI credential=a:"+strings.Repeat("x", 8<<10))
		},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+f.addr+"/session/abcd", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.sign(req)
		change(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		answer{resp.StatusCode, resp.Header, string(raw)}.problem(t, name, 400, "invalid-auth-params")
	}
}

// B-007, B-011, B-022, B-030, B-031: the life of a session, under all prefixes.
func TestBackendAISession(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	for i, prefix := range []string{"/session", "/kernel", "/v4/kernel", "/v6/session"} {
		name := fmt.Sprintf("life-%d", i)
		body := `{"image":"base","name":"` + name + `","tag":"t","config":{"environ":{"A":"b"},"resources":{"cpu":1,"mem":"64m"}}}`
		c := s.create(prefix, body, 201)
		if !c.Created || c.SessionName != name || c.KernelID != name || c.Status != "RUNNING" || len(c.ServicePorts) == 0 || len(c.SessionID) != 36 {
			t.Errorf("created %+v", c)
		}
		again := s.create(prefix+"/create", body, 200)
		if again.Created || again.SessionID != c.SessionID {
			t.Errorf("created again: %+v", again)
		}
		s.do("POST", prefix, strings.Replace(body, `"tag"`, `"reuseIfExists":false,"tag"`, 1)).problem(t, "not to be reused", 400, "session-already-exists")
		old := f.signer()
		old.version = "v4.20181215"
		if again := old.create(prefix+"/_/create", `{"lang":"base","clientSessionToken":"`+name+`"}`, 201); again.Created {
			t.Errorf("created again: %+v", again)
		}
		for _, id := range []string{name, c.SessionID} {
			a := s.do("GET", prefix+"/"+id, "")
			var info struct {
				Lang, Image, Tag, Status        string
				Age, MemoryLimit, CPUCreditUsed *int64
				NumQueriesExecuted              *int
			}
			if err := json.Unmarshal([]byte(a.body), &info); err != nil || a.code != 200 || info.Lang != "base" || info.Tag != "t" || info.Status != "RUNNING" ||
				info.Age == nil || info.MemoryLimit == nil || *info.MemoryLimit != 64<<10 || info.NumQueriesExecuted == nil || info.CPUCreditUsed == nil {
				t.Errorf("info of %s: %d %s", id, a.code, a.body)
			}
		}
		s.do("PATCH", prefix+"/"+name, "").want(t, "restart", 204, "")
		s.do("POST", prefix+"/"+name+"/interrupt", "").want(t, "interrupt", 204, "")

		bob := f.signer()
		bob.key = bobPairKey
		for _, id := range []string{name, c.SessionID} {
			bob.do("GET", prefix+"/"+id, "").problem(t, "another tenant", 404, "object-not-found")
			bob.do("DELETE", prefix+"/"+id, "").problem(t, "another tenant", 404, "object-not-found")
		}
		a := s.do("DELETE", prefix+"/"+name+"?forced=true&recursive=true", "")
		var gone struct{ Stats map[string]any }
		if err := json.Unmarshal([]byte(a.body), &gone); err != nil || a.code != 200 || gone.Stats["status"] != "terminated" || gone.Stats["cpu_used"] == nil {
			t.Errorf("DELETE: %d %s", a.code, a.body)
		}
		s.do("GET", prefix+"/"+name, "").problem(t, "after the end", 404, "object-not-found")
		s.do("DELETE", prefix+"/"+c.SessionID, "").problem(t, "after the end", 404, "object-not-found")
		next := s.create(prefix, body, 201)
		if !next.Created || next.SessionID == c.SessionID {
			t.Errorf("a new session with the name: %+v", next)
		}
		a = old.do("DELETE", prefix+"/"+name, "")
		clear(gone.Stats)
		if err := json.Unmarshal([]byte(a.body), &gone); err != nil || a.code != 200 || len(gone.Stats) == 0 {
			t.Errorf("DELETE: %d %s", a.code, a.body)
		}
		for k, v := range gone.Stats {
			if _, ok := v.(float64); !ok {
				t.Errorf("%s is %v, clients of v4.20181215 expect numbers", k, v)
			}
		}
	}
}

// B-022: sessions that cannot be created.
func TestBackendAISessionRejected(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	for body, slug := range map[string]string{
		`{"image":"no-such-image","name":"name1"}`:       "image-not-found",
		`{"image":"x/y/no-such-image:1","name":"name1"}`: "image-not-found",
		`{"image":"base","name":"a"}`:                    "invalid-api-params",
		`{"image":"base","name":"../../x"}`:              "invalid-api-params",
		`{"image":"base"}`:                               "invalid-api-params",
		`[`:                                              "invalid-api-params",
		`{"image":"base","name":"name1","config":{"mounts":["folder"]}}`:             "object-not-found",
		`{"image":"base","name":"name1","config":{"resources":{"mem":"1m"}}}`:        "invalid-api-params",
		`{"image":"base","name":"name1","config":{"resources":{"cuda.shares":"1"}}}`: "invalid-api-params",
	} {
		code := 400
		if strings.HasSuffix(slug, "not-found") {
			code = 404
		}
		s.do("POST", "/session", body).problem(t, body, code, slug)
	}
	s.do("POST", "/session", `{"image":"base","name":"name1","owner_access_key":"AKIAOTHER"}`).problem(t, "the key of another owner", 403, "generic-forbidden")
	f.host.SetRefuse(kind.Exhausted)
	s.do("POST", "/session", `{"image":"base","name":"name1"}`).problem(t, "no capacity", 503, "instance-not-available")
	f.host.SetRefuse(0)
	s.create("/session", `{"image":"base","name":"name1","owner_access_key":"`+pairKey+`"}`, 201)
	if c := s.create("/session", `{"image":"python:3.8","name":"name2","enqueueOnly":true}`, 201); c.Status != "PENDING" && c.Status != "PREPARING" && c.Status != "RUNNING" {
		t.Errorf("enqueued: %+v", c)
	}
}

// B-022: concurrent requests for one name at two gateways create one session.
func TestBackendAISessionIsCreatedOnce(t *testing.T) {
	f := newFixture(t)
	second := *f
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second.serve(gateway.Config{Listener: ln})
	const n = 50
	var wg sync.WaitGroup
	var made atomic.Int32
	ids := make([]string, n)
	for i := range n {
		wg.Go(func() {
			s := f.signer()
			if i%2 == 1 {
				s = second.signer()
			}
			a := s.do("POST", "/session", `{"image":"base","name":"only-one"}`)
			var c created
			if err := json.Unmarshal([]byte(a.body), &c); err != nil || a.code != 200 && a.code != 201 || c.Created != (a.code == 201) {
				t.Errorf("%d %s", a.code, a.body)
			}
			if ids[i] = c.SessionID; c.Created {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("sessions %s and %s", ids[0], id)
		}
	}
	if made.Load() != 1 {
		t.Errorf("%d requests created it", made.Load())
	}
}
