package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/sessiontoken"
)

const sessionBody = `{"template":"standard","llm":{"vendor":"anthropic"},"user_id":"you"}`

// chat is the response to a create or a resume.
type chat struct {
	ID         string `json:"chat_session_id"`
	JWT        string `json:"jwt"`
	ConnectURL string `json:"connect_url"`
	ExpiresAt  string `json:"expires_at"`
	VM         string `json:"vm_id"`
	From       struct {
		Status string `json:"previous_status"`
	} `json:"resumed_from"`
}

func (s *chat) sandbox() sandbox.ID { return sandbox.ID(strings.TrimPrefix(s.VM, "sbx_")) }

// withRuntimes makes the host's runtimes echo messages.
func (f *fixture) withRuntimes() {
	runtime := func(spec *process.Spec) bool { return spec.Tag != nil && *spec.Tag == "runtime" }
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) {
		return string(frame.AppendMessage(nil, frame.Message{Ready: &frame.Ready{}})), false, runtime(spec)
	}
	decoders := make(map[*process.Spec]*frame.Decoder) // the host calls Answer once at a time
	f.host.Answer = func(spec *process.Spec, in []byte) (out []byte) {
		if !runtime(spec) {
			return in
		}
		if decoders[spec] == nil {
			decoders[spec] = frame.NewDecoder(frame.MaxFromClient)
		}
		for x, err := range decoders[spec].Feed(in) {
			if err != nil {
				continue
			}
			if x.Kind != frame.Control {
				out = frame.Append(out, x.Kind, x.Payload)
				continue
			}
			m, err := frame.ParseMessage(x.Payload)
			if err == nil && m.Attach != nil {
				out = frame.AppendMessage(out, frame.Message{Attached: m.Attach.ID})
			}
		}
		return out
	}
}

func (f *fixture) createSession(t *testing.T, body string) (s chat) {
	t.Helper()
	f.as(key, "POST", "/v1/sessions", body).want(t, "create", 201, "").decode(t, &s)
	return s
}

func (f *fixture) resumeSession(t *testing.T, id string) (s chat) {
	t.Helper()
	f.as(key, "POST", "/v1/sessions/resume", `{"chat_session_id":"`+id+`"}`).want(t, "resume", 200, "").decode(t, &s)
	return s
}

// socket is a client of a conversation.
type socket struct {
	t *testing.T
	*fws.Conn
}

// open connects to a conversation; a query contains the token unless it is empty.
func (f *fixture) open(t *testing.T, s *chat, query string) *socket {
	t.Helper()
	h := http.Header{}
	if !strings.Contains(query, "token=") {
		h.Set("Authorization", "Bearer "+s.JWT)
	}
	ws, resp, err := fws.DefaultDialer.Dial("ws://"+f.addr+"/v1/sessions/"+s.ID+"/ws"+query, h)
	if err != nil {
		t.Fatalf("connect: %v, %v", err, resp)
	}
	t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	return &socket{t, ws}
}

func (ws *socket) send(text string) {
	ws.t.Helper()
	if err := ws.WriteMessage(fws.TextMessage, []byte(text)); err != nil {
		ws.t.Fatal(err)
	}
}

func (ws *socket) want(text string) {
	ws.t.Helper()
	if _, raw, err := ws.ReadMessage(); err != nil || string(raw) != text {
		ws.t.Fatalf("got %q, %v; want %q", raw, err, text)
	}
}

// echo checks that the runtime answers.
func (ws *socket) echo(text string) {
	ws.t.Helper()
	ws.send(text)
	ws.want(text)
}

// closed checks the close frame, after any messages.
func (ws *socket) closed(code int, reason string) {
	ws.t.Helper()
	for {
		_, _, err := ws.ReadMessage()
		if err == nil {
			continue
		}
		var c *fws.CloseError
		if !errors.As(err, &c) || c.Code != code || reason != "" && c.Text != reason {
			ws.t.Errorf("closed with %v, want %d %s", err, code, reason)
		}
		return
	}
}

// signer returns what signs the tokens of the gateways.
func (f *fixture) tokens(t *testing.T) *sessiontoken.Signer {
	t.Helper()
	secret, err := f.log.Secret(t.Context(), "sandbox-token")
	if err != nil {
		t.Fatal(err)
	}
	return sessiontoken.New((&core.Core{Config: core.Config{Secret: secret}}).DeriveKey)
}

// E-150, E-160..E-166, E-170, E-171: what a client gets.
func TestCreateSession(t *testing.T) {
	f := newFixture(t)
	f.withRuntimes()
	for body, want := range map[string]sessiontoken.Claims{
		sessionBody: {App: "e2a-sandbox", Set: "default"},
		`{"agent":{},"template":"standard","llm":{"vendor":"google","model":"a.b_C-1"},"app":{"id":"mine","set_id":"s","capability_sets":{"x":1}},"user_id":"bob","ttl_seconds":9999}`: {App: "mine", Set: "s"},
	} {
		begin := time.Now()
		s := f.createSession(t, body)
		c, ok := f.tokens(t).Check(s.JWT, time.Now())
		ttl := int64(3600)
		if want.App == "mine" {
			ttl = 7200
		}
		if left := c.Expires - begin.Unix(); !ok || c.Session != s.ID || c.Tenant != "default" || c.User != "default" || c.App != want.App || c.Set != want.Set || c.Desktop || left < ttl || left > ttl+60 {
			t.Errorf("claims %+v", c)
		}
		if at, err := time.Parse(time.RFC3339, s.ExpiresAt); err != nil || at.Unix() != c.Expires {
			t.Errorf("expires at %s, %v", s.ExpiresAt, err)
		}
		if want := "ws://" + f.addr + "/v1/sessions/" + s.ID + "/ws"; s.ConnectURL != want {
			t.Errorf("connect URL %s, want %s", s.ConnectURL, want)
		}
		st, ok := f.view.Sandbox(s.sandbox())
		if r := &st.Request; !ok || !st.IsRunning() || r.Idle != time.Minute || r.Warning != 10*time.Second || r.HardEnd.Unix() != c.Expires || r.Metadata["chat_session_id"] != s.ID || r.Metadata["user_id"] != "default" || r.Metadata["end_user_id"] == "" {
			t.Errorf("sandbox %+v", st)
		}
		f.open(t, &s, "").echo("hello")
	}
}

// E-150..E-158, E-161, E-168, E-169: what is rejected. Nothing of it creates a sandbox.
func TestSessionsThatAreRejected(t *testing.T) {
	f := newFixture(t)
	f.withRuntimes()
	const llm = `"llm":{"vendor":"openai"}`
	change := func(members string) string {
		return `{"template":"standard",` + llm + `,"user_id":"you",` + members + `}`
	}
	long := strings.Repeat("m", 129)
	for name, body := range map[string]string{
		"no body":           "",
		"no object":         `[]`,
		"codex":             change(`"agent":{"kind":"codex"}`),
		"claude-code":       change(`"agent":{"kind":"claude-code"}`),
		"another agent":     change(`"agent":{"kind":"zzz"}`),
		"an empty agent":    change(`"agent":{"kind":""}`),
		"agent as text":     change(`"agent":"deictic"`),
		"a numeric version": change(`"agent":{"version":1}`),
		"canvas":            `{"template":"canvas",` + llm + `,"user_id":"you"}`,
		"no template":       `{` + llm + `,"user_id":"you"}`,
		"no user":           `{"template":"standard",` + llm + `}`,
		"an empty user":     `{"template":"standard",` + llm + `,"user_id":""}`,
		"no llm":            `{"template":"standard","user_id":"you"}`,
		"no vendor":         `{"template":"standard","llm":{},"user_id":"you"}`,
		"another vendor":    `{"template":"standard","llm":{"vendor":"x"},"user_id":"you"}`,
		"a long model":      `{"template":"standard","llm":{"vendor":"openai","model":"` + long + `"},"user_id":"you"}`,
		"an empty model":    `{"template":"standard","llm":{"vendor":"openai","model":""},"user_id":"you"}`,
		"a model's path":    `{"template":"standard","llm":{"vendor":"openai","model":"a/b"},"user_id":"you"}`,
		"http":              `{"template":"standard","llm":{"vendor":"openai","base_url":"http://1.1.1.1"},"user_id":"you"}`,
		"loopback":          `{"template":"standard","llm":{"vendor":"openai","base_url":"https://127.0.0.1/v1"},"user_id":"you"}`,
		"metadata service":  `{"template":"standard","llm":{"vendor":"openai","base_url":"https://169.254.169.254"},"user_id":"you"}`,
		"no time":           change(`"ttl_seconds":0`),
		"half a second":     change(`"ttl_seconds":0.5`),
		"11 bundles":        change(`"secrets":["1","2","3","4","5","6","7","8","9","10","11"]`),
		"sets as a list":    change(`"app":{"capability_sets":[]}`),
		"a repeated user":   change(`"user_id":"bob"`),
	} {
		f.as(key, "POST", "/v1/sessions", body).failed(t, name, 400, "invalid")
	}
	f.as(key, "POST", "/v1/sessions", change(`"secrets":["none"]`)).failed(t, "a missing bundle", 404, "not_found")
	f.as("", "POST", "/v1/sessions", sessionBody).failed(t, "no key", 401, "unauthenticated")
	f.as(key, "POST", "/v1/sessions", `{"template":"browser",`+llm+`,"user_id":"you"}`).failed(t, "a template that is not built", 503, "template_not_built")
	if all := f.view.Sandboxes(func(*sandbox.State) bool { return true }); len(all) > 0 {
		t.Errorf("%d sandboxes", len(all))
	}
	f.host.SetRefuse(kind.Exhausted)
	f.as(key, "POST", "/v1/sessions", sessionBody).failed(t, "no room", 503, "unavailable")
	f.host.SetRefuse(kind.Unavailable)
	f.as(key, "POST", "/v1/sessions", sessionBody).failed(t, "no host", 503, "unavailable")
}

// E-190..E-196, E-213: which credentials connect.
func TestSessionCredentials(t *testing.T) {
	f := newFixture(t)
	f.withRuntimes()
	s, other := f.createSession(t, sessionBody), f.createSession(t, sessionBody)
	f.open(t, &s, "").echo("x")
	f.open(t, &s, "?token="+s.JWT).echo("y")
	now := time.Now()
	sign := func(change func(*sessiontoken.Claims)) string {
		c := sessiontoken.Claims{Tenant: "default", User: "default", Session: s.ID, Issued: now.Unix(), Expires: now.Unix() + 60}
		change(&c)
		token, err := f.tokens(t).Client(c)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	const unknown = "ses_aaaaaaaaaaaaaaaaaaaaaaaa"
	for name, tt := range map[string]struct {
		token, id string
		code      int
	}{
		"no token":             {"", s.ID, 401},
		"an API key":           {key, s.ID, 401},
		"a changed signature":  {s.JWT[:len(s.JWT)-2] + "AA", s.ID, 401},
		"expired":              {sign(func(c *sessiontoken.Claims) { c.Expires = now.Unix() - 1 }), s.ID, 401},
		"an unknown session":   {sign(func(c *sessiontoken.Claims) { c.Session = unknown }), unknown, 401},
		"no session at all":    {sign(func(c *sessiontoken.Claims) { c.Session = "x" }), "x", 401},
		"of another session":   {other.JWT, s.ID, 403},
		"of another tenant":    {sign(func(c *sessiontoken.Claims) { c.Tenant = "bob" }), s.ID, 403},
		"for an unknown one":   {s.JWT, unknown, 403},
		"a valid one, no 101":  {s.JWT, s.ID, 426},
		"a bad position":       {s.JWT, s.ID + "/ws?after=x&", 400},
		"a token in the query": {"?", s.ID + "/ws?token=" + other.JWT + "&", 403},
	} {
		path := "/v1/sessions/" + tt.id
		if !strings.Contains(path, "?") {
			path += "/ws"
		}
		credential := tt.token
		if credential == "?" {
			credential = ""
		}
		if got := f.as(credential, "GET", path, ""); got.code != tt.code {
			t.Errorf("%s: %d %s, want %d", name, got.code, got.body, tt.code)
		}
	}
}

// E-197, E-201, E-204, E-214, E-215: one connection at all gateways, whose text is not changed.
func TestSessionConnection(t *testing.T) {
	f, g := twoGateways(t)
	f.withRuntimes()
	s := f.createSession(t, sessionBody)
	first := f.open(t, &s, "")
	for _, text := range []string{`{"b" : 1,  "a":[ ] }`, "not JSON", "", "\u2028 \"", strings.Repeat("x", 700<<10)} {
		first.echo(text)
	}
	second := g.open(t, &s, "")
	second.echo("second")
	first.closed(1011, "")
	third := g.open(t, &s, "")
	third.echo("third")
	second.closed(1011, "")
	if err := third.WriteMessage(fws.BinaryMessage, []byte("x")); err != nil {
		t.Fatal(err)
	}
	third.closed(1003, "")
	large := f.open(t, &s, "")
	large.echo("large")
	large.send(strings.Repeat("x", 1<<20+1))
	large.closed(1009, "")
}

// E-209, E-210, E-211, E-092: how connections end.
func TestSessionConnectionEnds(t *testing.T) {
	f, g := twoGateways(t)
	f.withRuntimes()
	s := f.createSession(t, sessionBody)
	ws := g.open(t, &s, "")
	ws.echo("x")
	f.do("DELETE", "/sandboxes/"+string(s.sandbox()), "").want(t, "delete", 204, "")
	ws.closed(1001, "sandbox destroyed")
	f.open(t, &s, "").closed(1011, "upstream unavailable")

	s = f.createSession(t, sessionBody)
	ws = f.open(t, &s, "")
	ws.echo("x")
	for _, p := range f.view.ActiveProcesses(s.sandbox(), func(*process.Summary) bool { return true }) {
		f.do("POST", "/v1/processes/"+string(p.ID)+"/signal", `{"signal":9}`).want(t, "kill", 204, "")
	}
	ws.closed(1011, "upstream unavailable")
	f.open(t, &s, "").closed(1011, "upstream unavailable")

	s = f.createSession(t, sessionBody)
	ws = f.open(t, &s, "")
	ws.echo("x")
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	ws.closed(1001, "server shutting down")
	g.open(t, &s, "").echo("still there")
}

// systemMessage is a message of the gateway itself.
type systemMessage struct{ Type, Event, After, Reason string }

// A client that asks for positions continues where it was, at any gateway.
func TestSessionPositions(t *testing.T) {
	f, g := twoGateways(t)
	f.withRuntimes()
	s := f.createSession(t, sessionBody)
	var at string
	// read returns the texts up to one, and the position behind it.
	read := func(ws *socket, last string) (got []string) {
		t.Helper()
		for done := false; ; {
			_, raw, err := ws.ReadMessage()
			if err != nil {
				t.Fatalf("%v after %q", err, got)
			}
			var m systemMessage
			if json.Unmarshal(raw, &m) == nil && m.Event == "position" {
				if at = m.After; done {
					return got
				}
				continue
			}
			got = append(got, string(raw))
			done = done || string(raw) == last
		}
	}
	one := f.open(t, &s, "?after=")
	one.send("a")
	read(one, "a")
	one.send("b")
	behindB := read(one, "b")
	if fmt.Sprint(behindB) != "[b]" {
		t.Errorf("got %q", behindB)
	}
	middle := at
	one.send("c")
	read(one, "c")
	two := g.open(t, &s, "?after="+middle)
	if got := read(two, "c"); fmt.Sprint(got) != "[c]" {
		t.Errorf("continued with %q", got)
	}
	two.send("d")
	read(two, "d")
	three := f.open(t, &s, "?after=0")
	if got := read(three, "d"); fmt.Sprint(got) != "[a b c d]" {
		t.Errorf("from the beginning: %q", got)
	}
	four := f.open(t, &s, "") // no position: nothing that was sent before
	four.echo("e")
	s = f.resumeSession(t, s.ID)
	five := f.open(t, &s, "?after="+middle) // of the sandbox before
	five.send("f")
	if got := read(five, "f"); fmt.Sprint(got) != "[f]" {
		t.Errorf("after a resume: %q", got)
	}
}

// E-175..E-178, E-181..E-183, E-187: a resume.
func TestResumeSession(t *testing.T) {
	f, g := twoGateways(t)
	f.withRuntimes()
	s := f.createSession(t, `{"template":"standard","llm":{"vendor":"deepseek","model":"m"},"user_id":"you"}`)
	ws := f.open(t, &s, "")
	ws.echo("x")
	again := g.resumeSession(t, s.ID)
	if again.ID != s.ID || again.JWT == s.JWT || again.VM == s.VM || again.From.Status != "running" {
		t.Errorf("resumed %+v", again)
	}
	ws.closed(1001, "sandbox destroyed")
	f.open(t, &again, "").echo("y")
	if all := f.view.Sandboxes(func(s *sandbox.State) bool { return !s.Over() }); len(all) != 1 || all[0].ID != again.sandbox() || all[0].Request.From == "" {
		t.Errorf("sandboxes %+v", all)
	}
	env := f.runtimeEnv(t, again.sandbox())
	if before := f.runtimeEnv(t, s.sandbox()); !maps.Equal(env, before) || env["E2A_PLATFORM_LLM_MODEL"] != "m" {
		t.Errorf("environment %v, before %v", env, before)
	}
	// The window ends with the sandbox.
	if same := f.resumeSession(t, s.ID); same != again {
		t.Errorf("resumed again: %+v", same)
	}
	f.do("DELETE", "/sandboxes/"+string(again.sandbox()), "").want(t, "delete", 204, "")
	if next := g.resumeSession(t, s.ID); next.JWT == again.JWT || next.VM == again.VM || next.From.Status != "completed" {
		t.Errorf("after the end: %+v", next)
	}

	const path = "/v1/sessions/resume"
	f.as(key, "POST", path, `{"chat_session_id":"ses_aaaaaaaaaaaaaaaaaaaaaaaa"}`).failed(t, "unknown", 404, "not_found")
	f.as(key, "POST", path, `{"chat_session_id":"x"}`).failed(t, "no id", 404, "not_found")
	f.as(key, "POST", path, `{}`).failed(t, "none", 400, "invalid")
	f.as("", "POST", path, `{"chat_session_id":"`+s.ID+`"}`).failed(t, "no key", 401, "unauthenticated")
	f.as(bobKey, "POST", path, `{"chat_session_id":"`+s.ID+`"}`).failed(t, "another tenant", 403, "cross_tenant_resume_denied")
	all, _ := f.trail(t)
	if e := all[len(all)-1]; e.Event != "cross_tenant_resume_denied" || e.Owner != "default" || e.Tenant != "bob" || e.Status != 403 {
		t.Errorf("audited %+v", e)
	}
	f.host.SetRefuse(kind.Exhausted)
	f.do("DELETE", "/sandboxes/"+string(f.resumedVM(t, s.ID)), "")
	f.as(key, "POST", path, `{"chat_session_id":"`+s.ID+`"}`).failed(t, "no room", 503, "unavailable")
	f.host.SetRefuse(0)
	if next := f.resumeSession(t, s.ID); next.From.Status != "completed" {
		t.Errorf("after a failure: %+v", next)
	}
}

// resumedVM returns the sandbox of a conversation.
func (f *fixture) resumedVM(t *testing.T, id string) sandbox.ID {
	t.Helper()
	all := f.view.Sandboxes(func(s *sandbox.State) bool { return s.Request.Metadata["chat_session_id"] == id && !s.Over() })
	if len(all) != 1 {
		t.Fatalf("%d sandboxes", len(all))
	}
	return all[0].ID
}

// runtimeEnv returns the environment of a runtime, but for what names its start.
func (f *fixture) runtimeEnv(t *testing.T, id sandbox.ID) map[string]string {
	t.Helper()
	env := f.host.Env(id, "runtime")
	if env == nil {
		t.Fatalf("no runtime in %s", id)
	}
	return env
}

// E-179, E-180: any number of resumes at two gateways create one sandbox and have one result.
func TestConcurrentResumes(t *testing.T) {
	f, g := twoGateways(t)
	f.withRuntimes()
	s := f.createSession(t, sessionBody)
	f.do("DELETE", "/sandboxes/"+string(s.sandbox()), "").want(t, "delete", 204, "")
	var mu sync.Mutex
	bodies := make(map[string]int)
	var wg sync.WaitGroup
	for i := range 50 {
		at := f
		if i%2 == 1 {
			at = g
		}
		wg.Go(func() {
			a := at.as(key, "POST", "/v1/sessions/resume", `{"chat_session_id":"`+s.ID+`"}`)
			mu.Lock()
			defer mu.Unlock()
			if bodies[a.body]++; a.code != 200 {
				t.Errorf("%d %s", a.code, a.body)
			}
		})
	}
	wg.Wait()
	if len(bodies) != 1 {
		t.Errorf("%d results: %v", len(bodies), bodies)
	}
	if all := f.view.Sandboxes(func(s *sandbox.State) bool { return true }); len(all) != 2 {
		t.Errorf("%d sandboxes", len(all))
	}
}

// E-138, E-139, E-207: a cancel at one gateway reaches the client at another one, and the response says
// whether there was a client.
func TestSessionCancel(t *testing.T) {
	f, g := twoGateways(t)
	f.withRuntimes()
	s := f.createSession(t, sessionBody)
	path := "/v1/sandboxes/" + s.VM + "/cancel"
	f.as(key, "POST", path, `{"reason":"admin_action"}`).want(t, "no client", 200, `{"vm_id":"`+s.VM+`","cancelled":false,"reason":"admin_action"}`)
	ws := g.open(t, &s, "")
	ws.echo("x")
	f.as(key, "POST", path, `{"reason":"admin_action"}`).want(t, "a client", 200, `{"vm_id":"`+s.VM+`","cancelled":true,"reason":"admin_action"}`)
	ws.want(`{"type":"system","event":"cancel","reason":"admin_action"}`)
	g.as(key, "POST", path, "").want(t, "no reason", 200, `{"vm_id":"`+s.VM+`","cancelled":true,"reason":"user_request"}`)
	ws.want(`{"type":"system","event":"cancel","reason":"user_request"}`)
	ws.echo("y")
}
