package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// TestE2ARules covers rules of e2a that no other test names, on one server and with one key.
func TestE2ARules(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{Args: []string{"--sign-up-test-mode"}})
	for name, check := range map[string]func(*testing.T, *rig.Up){
		"templates": rulesOfTemplates, "agents": rulesOfAgents, "secrets": rulesOfSecrets, "resume": rulesOfResumes,
		"tokens": rulesOfTokens, "states": rulesOfStates, "billing": rulesOfBilling,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, u)
		})
	}
}

// E-006, E-008, E-013, E-059, E-278: each template of the seed is known; the same key works on both surfaces, and
// the created sandbox executes commands at once.
func rulesOfTemplates(t *testing.T, u *rig.Up) {
	for _, name := range []string{"standard", "browser", "cua", "canvas"} {
		a := u.Do(t, "POST", "/v1/sandboxes", `{"template":"`+name+`","idle_timeout_seconds":600}`, bearer(u.API)...)
		if !slices.Contains([]int{http.StatusCreated, http.StatusConflict, http.StatusServiceUnavailable}, a.Status) {
			t.Errorf("%s: %v", name, a)
		}
	}
	v := newVM(t, u.API)
	if x := v.exec(t, "echo at once"); x.Output != "at once\n" {
		t.Errorf("%+v", x)
	}
	type listed struct {
		ID string `json:"sandboxID"`
	}
	var both []listed
	u.Want(t, 200, "GET", "/sandboxes", nil, "X-API-Key", u.Key).Decode(t, &both)
	if !slices.ContainsFunc(both, func(b listed) bool { return b.ID == v.box() }) {
		t.Errorf("the other surface does not list %s", v.ID)
	}
	u.Want(t, 401, "GET", "/v1/templates", nil, "Authorization", "Bearer mr_wrong")
	u.Want(t, 401, "GET", "/v1/templates/deictic", nil, "Authorization", "Bearer mr_wrong")
}

// E-008, E-014, E-015, E-023: which models an agent accepts; and a sandbox of an agent has no WebSocket.
func rulesOfAgents(t *testing.T, u *rig.Up) {
	for _, fields := range []string{
		`"agent":"deictic","llm_key":"k"`, `"agent":"claude-code","model":"gpt-5","llm_key":"k"`, `"agent":"codex","model":"claude-x","llm_key":"k"`,
		`"agent":"deictic","model":"m"`,
	} {
		u.Want(t, 400, "POST", "/v1/sandboxes", `{"template":"standard",`+fields+`}`, bearer(u.API)...)
	}
	u.Want(t, 501, "POST", "/v1/sandboxes", `{"template":"standard","agent":"other","model":"m","llm_key":"k"}`, bearer(u.API)...)
	v := newVM(t, u.API)
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	if a := v.do(t, "GET", "/ws", nil, upgrade...); a.Status != 404 {
		t.Errorf("upgrade: %v", a)
	}
}

// E-011, E-159, E-323: LLM_API_KEY is the name of every vendor's key, and a session has the keys of all its bundles.
func rulesOfSecrets(t *testing.T, u *rig.Up) {
	for name, values := range map[string]string{"model": `{"LLM_API_KEY":"canary"}`, "more": `{"MORE":"x","SECOND":"y"}`} {
		u.Want(t, 201, "POST", secretsPath, `{"name":"`+name+`","values":`+values+`}`, bearer(u.API)...)
	}
	for _, vendor := range []string{"openai", "anthropic", "google", "deepseek"} {
		c := converse(t, u.API, "/v1/sessions", `{"template":"standard","llm":{"vendor":"`+vendor+`","model":"m"},"user_id":"you","secrets":["model","more"]}`, 201)
		if got := talkTo(t, u.API, &c, "").run("echo $LLM_API_KEY $MORE $SECOND"); got != "canary x y\n" {
			t.Errorf("%s: %q", vendor, got)
		}
	}
	u.Want(t, 404, "PUT", secretsPath+"/unknown", `{"values":{"A":"b"}}`, bearer(u.API)...)
}

// E-007, E-185, E-186: a resumed session has the template, the model, its address and the secrets of before.
func rulesOfResumes(t *testing.T, u *rig.Up) {
	u.Want(t, 201, "POST", secretsPath, `{"name":"resumed","values":{"LLM_API_KEY":"canary"}}`, bearer(u.API)...)
	c := converse(t, u.API, "/v1/sessions", `{"template":"standard","llm":{"vendor":"openai","model":"first","base_url":"https://models.example/v1"},"user_id":"you","secrets":["resumed"]}`, 201)
	config := func(c *conversation) (out map[string]any) {
		must(t, json.Unmarshal([]byte(talkTo(t, u.API, c, "").run("cat /app/config/env.json")), &out))
		return out
	}
	before := config(&c)
	u.Want(t, 401, "POST", "/v1/sessions/resume", resumption(c.ID), "Authorization", "Bearer mr_wrong")
	next := converse(t, u.API, "/v1/sessions/resume", resumption(c.ID), 200)
	after := config(&next)
	if before["LLM_API_KEY"] != "canary" || before["LLM_MODEL"] != "first" || before["LLM_BASE_URL"] != "https://models.example/v1" {
		t.Errorf("%v", before)
	}
	for name, was := range before {
		if now := after[name]; now != was {
			t.Errorf("%s is %v after the resume, was %v", name, now, was)
		}
	}
}

// E-199, E-200: the token that the gateway shows to the runtime never reaches a client.
func rulesOfTokens(t *testing.T, u *rig.Up) {
	c := converse(t, u.API, "/v1/sessions", conversationBody, 201)
	k := talkTo(t, u.API, &c, "?after=")
	k.send("env; cat /app/config/env.json; ls -la /app/config; echo the end")
	for {
		_, raw, err := k.ws.ReadMessage()
		must(t, err)
		if strings.Contains(string(raw), "eyJ") { // the beginning of every JWT
			t.Errorf("a client got %s", raw)
		}
		var f frameOf
		if must(t, json.Unmarshal(raw, &f)); f.Type == "exit" {
			return
		}
	}
}

// E-240, E-241: a paused sandbox refuses commands, and executes them again when it was resumed; one that has ended
// never does.
func rulesOfStates(t *testing.T, u *rig.Up) {
	v := newVM(t, u.API)
	state := func() (s struct{ State string }) {
		v.do(t, "GET", "", nil).Decode(t, &s)
		return s
	}
	if got := state().State; got != "running" {
		t.Errorf("state %q", got)
	}
	u.Want(t, 204, "POST", "/sandboxes/"+v.box()+"/pause", nil)
	if got := state().State; got != "paused" {
		t.Errorf("state %q", got)
	}
	if a := v.do(t, "POST", "/exec", `{"command":"true"}`); a.Status != 409 {
		t.Errorf("exec while it is paused: %v", a)
	}
	if a := v.do(t, "POST", "/cancel", nil); a.Status != 409 {
		t.Errorf("cancel while it is paused: %v", a)
	}
	u.Want(t, 201, "POST", "/sandboxes/"+v.box()+"/resume", `{}`)
	if x := v.exec(t, "echo again"); x.Output != "again\n" {
		t.Errorf("%+v", x)
	}
	v.do(t, "DELETE", "", nil)
	if a := v.do(t, "POST", "/exec", `{"command":"true"}`); a.Status != 404 && a.Status != 409 {
		t.Errorf("exec after the end: %v", a)
	}
}

// E-346: the settings of automatic payments are stored.
func rulesOfBilling(t *testing.T, u *rig.Up) {
	token := []string{"Authorization", "Bearer " + userToken(t, u.URL)}
	const settings = `{"enabled":false,"threshold_amount":700,"topup_amount":900}`
	if got := string(u.Want(t, 200, "POST", "/v1/billing/auto-topup", settings, token...).Body); got != `{"status":"updated"}` {
		t.Error(got)
	}
	if got := string(u.Want(t, 200, "GET", "/v1/billing/auto-topup", nil, token...).Body); got != settings {
		t.Error(got)
	}
}
