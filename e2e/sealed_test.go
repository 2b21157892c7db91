package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// canaries are secrets with a common prefix, which is searched for in all its forms.
type canaries struct {
	prefix string
	forms  [][]byte
	made   int
}

func newCanaries() *canaries {
	raw := make([]byte, 12)
	rand.Read(raw)
	c := &canaries{prefix: "canary" + hex.EncodeToString(raw)}
	c.forms = [][]byte{[]byte(c.prefix), []byte(hex.EncodeToString([]byte(c.prefix)))}
	for shift := range 3 { // whatever precedes the prefix in a base64 text
		text := base64.StdEncoding.EncodeToString(append(make([]byte, shift), c.prefix...))
		c.forms = append(c.forms, []byte(text[4:len(text)-4]))
	}
	return c
}

func (c *canaries) next() string {
	c.made++
	return fmt.Sprintf("%s-%04d", c.prefix, c.made)
}

// env returns an environment of n secrets.
func (c *canaries) env(n int) map[string]string {
	out := make(map[string]string, n)
	for i := range n {
		out[fmt.Sprintf("CANARY_%d", i)] = c.next()
	}
	return out
}

// in reports whether a text has a secret. S2, which packs records, leaves the first of several equal
// texts as it is.
func (c *canaries) in(text []byte) bool {
	return slices.ContainsFunc(c.forms, func(form []byte) bool { return bytes.Contains(text, form) })
}

// nowhere searches the log and the data directory of u, in which no secret may be.
func (c *canaries) nowhere(t *testing.T, u *rig.Up, when string) {
	t.Helper()
	if c.in([]byte(u.Log())) {
		t.Errorf("%s the log has a secret", when)
	}
	if n := c.scan(t, u.Data); n < 10 {
		t.Errorf("%s only %d files were searched", when, n)
	}
}

// scan fails for each file below dir that has a secret.
func (c *canaries) scan(t *testing.T, dir string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		if files++; c.in(text) {
			t.Errorf("%s has a secret", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// planter plants secrets by all surfaces. Answers that may show them to their owner are not checked.
type planter struct {
	*canaries
	t *testing.T
	a *rig.API
}

// do sends a request whose answer must have no secret.
func (p *planter) do(method, path string, body any, headers ...string) rig.Answer {
	p.t.Helper()
	ans := p.a.Do(p.t, method, path, body, headers...)
	if p.in(ans.Body) {
		p.t.Errorf("the answer of %s %s has a secret: %v", method, path, ans)
	}
	return ans
}

// runs starts a process by Connect, which must find its environment.
func (p *planter) run(box string, env map[string]string, args ...string) {
	p.t.Helper()
	run := p.a.StartSpec(p.t, box, map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": args, "envs": env}, "stdin": false}).All(p.t)
	if p.in([]byte(run.Stdout() + string(run.Out["stderr"]))) {
		p.t.Error("the test prints a secret itself")
	}
}

// count has a sandbox's process count the secrets in its environment, without printing them.
func (p *planter) count(box string, env map[string]string, want int) {
	p.t.Helper()
	run := p.a.StartSpec(p.t, box, map[string]any{"process": map[string]any{
		"cmd": "/bin/sh", "args": []string{"-c", "env | grep -c '^CANARY.*=canary'"}, "envs": env,
	}, "stdin": false}).All(p.t)
	if got := strings.TrimSpace(run.Stdout()); got != fmt.Sprint(want) {
		p.t.Errorf("a process of %s has %s secrets in its environment, want %d", box, got, want)
	}
}

// create creates a sandbox of a template with n secrets.
func (p *planter) create(template string, n int) string {
	p.t.Helper()
	return p.a.Create(p.t, "templateID", template, "envVars", p.env(n), "mcp", map[string]any{"a": map[string]string{"key": p.next()}}).ID
}

// template builds a template with n secrets and returns its name.
func (p *planter) template(n int) string {
	p.t.Helper()
	var args []string
	for name, value := range p.env(n) {
		args = append(args, "T"+name, value)
	}
	var made struct{ TemplateID, BuildID string }
	p.a.Want(p.t, http.StatusAccepted, "POST", "/v3/templates", map[string]any{"name": "sealed"}).Decode(p.t, &made)
	at := "/templates/" + made.TemplateID + "/builds/" + made.BuildID
	p.a.Want(p.t, http.StatusAccepted, "POST", "/v2"+at, map[string]any{"fromTemplate": "base", "steps": []any{
		map[string]any{"type": "ENV", "args": args}, map[string]any{"type": "RUN", "args": []string{"env | grep -c '^TCANARY.*=canary'"}},
	}})
	var s buildState
	if !rig.Poll(2*time.Minute, func() bool {
		p.do("GET", at+"/status", nil).Decode(p.t, &s)
		return s.Status == "ready" || s.Status == "error"
	}) || s.Status != "ready" {
		p.t.Fatalf("build: %+v", s)
	}
	if s.count(fmt.Sprint(n)) != 1 {
		p.t.Errorf("the step did not find %d variables: %+v", n, s.Entries)
	}
	return "sealed"
}

// credential are the headers of a request to e2a with a credential.
func credential(secret string) []string {
	return []string{"Authorization", "Bearer " + secret, "X-Api-Key", ""}
}

// e2a plants secrets by e2a's surface, by requests that succeed and that fail.
func (p *planter) e2a() {
	p.t.Helper()
	want := func(code int, path string, body map[string]any) {
		p.t.Helper()
		if ans := p.do("POST", path, body, credential(p.a.Key)...); ans.Status != code {
			p.t.Errorf("POST %s: %v, want %d", path, ans, code)
		}
	}
	const persist = "https://persist.invalid/"
	want(201, secretsPath, map[string]any{"name": "sealed", "values": p.env(5)})
	want(201, "/v1/sandboxes", map[string]any{"template": "standard", "llm_key": p.next(), "env_vars": p.env(5), "persistence_url": persist, "persistence_auth_header": p.next()})
	want(400, "/v1/sandboxes", map[string]any{"template": "standard", "llm_key": p.next(), "env_vars": map[string]string{"TASK": p.next()}})
	want(400, "/v1/sandboxes", map[string]any{"template": "standard", "llm_key": []string{p.next()}, "persistence_url": "https://127.0.0.1/" + p.next()})
	model := func(url string) map[string]any {
		return map[string]any{"vendor": "openai", "api_key": p.next(), "base_url": url}
	}
	want(201, "/v1/sessions", map[string]any{"template": "standard", "user_id": "u", "llm": model(persist), "persistence_url": persist, "persistence_auth_header": p.next(), "secrets": []string{"sealed"}})
	want(400, "/v1/sessions", map[string]any{"template": "standard", "user_id": "u", "llm": model("https://127.0.0.1/?" + p.next())})
}

// denied presents wrong credentials of every kind, which may be right elsewhere. The sandbox requires none.
func (p *planter) denied(box string) {
	p.t.Helper()
	for _, tt := range []struct {
		code         int
		method, path string
		headers      []string
	}{
		{401, "GET", "/v2/sandboxes", []string{"X-Api-Key", p.next()}},
		{401, "GET", "/v1/sandboxes", credential(p.next())},
		{401, "GET", "/v1/processes?api_key=" + p.next(), []string{"X-Api-Key", ""}},
		{404, "GET", "/files?path=/missing&sandbox=" + box + "&signature=" + p.next(), []string{"X-Api-Key", "", "X-Access-Token", p.next()}},
		{401, "GET", "/files?path=/x&signature=" + p.next(), []string{"X-Api-Key", ""}},
		{401, "GET", "/v1/shares/self", []string{"X-Api-Key", "", "Millrace-Share", p.next()}},
		{401, "GET", "/codex/" + box + "?token=" + p.next(), []string{"X-Api-Key", ""}},
		{401, "GET", "/v1/sessions/ses_x/ws?token=" + p.next(), []string{"X-Api-Key", ""}},
		{403, "GET", "/v1/workspace-files/" + p.next(), []string{"X-Api-Key", ""}},
		{401, "GET", "/session/x", append(credential(""), "Authorization", "BackendAI signMethod=HMAC-SHA256, credential="+p.next()+":"+p.next(), "Date", time.Now().UTC().Format(http.TimeFormat))},
	} {
		if ans := p.do(tt.method, tt.path, nil, tt.headers...); ans.Status != tt.code {
			p.t.Errorf("%s %s: %v, want %d", tt.method, tt.path, ans, tt.code)
		}
	}
	if ans := p.do("POST", "/v1/tenants/verify", map[string]string{"email": "you@example.com", "code": p.next()}, "X-Api-Key", ""); ans.Status != 401 {
		p.t.Errorf("a wrong code: %v", ans)
	}
}

// TestSecretsAreSealed plants secrets by every surface that receives them and searches for them in the
// store, the files of the host, logs, metrics and answers.
func TestSecretsAreSealed(t *testing.T) {
	u := rig.NewUp(t, rig.Options{Env: []string{hookEnv}})
	p := &planter{newCanaries(), t, u.API}
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()

	for i := range 100 {
		p.do("POST", "/secrets", map[string]string{"name": fmt.Sprint("S", i), "value": p.next()})
	}
	for i := range 10 {
		p.do("POST", "/events/webhooks", map[string]any{"name": fmt.Sprint("h", i), "url": hook.URL, "signatureSecret": p.next(), "events": []string{"sandbox.lifecycle.created"}})
	}
	box, other := p.create("base", 300), p.create("base", 120)
	p.count(box, nil, 300)
	p.count(box, map[string]string{"CANARY_X": p.next()}, 301)
	sleeper := p.a.StartSpec(t, box, map[string]any{"process": map[string]any{"cmd": "sleep", "args": []string{"1000"}, "envs": p.env(100)}, "stdin": false, "tag": "sleeper"})
	sleeper.Started(t)
	// An E2B client reads the environment of its processes in List.
	if list := p.a.RPC(t, box, "/process.Process/List", map[string]any{}); strings.Count(string(list.Body), p.prefix) != 100 {
		t.Errorf("List: %v", list)
	}
	if got := p.a.Do(t, "GET", "/envs", nil, "E2b-Sandbox-Id", box, "X-Access-Token", ""); strings.Count(string(got.Body), p.prefix) != 300 {
		t.Errorf("/envs: %v", got)
	}
	// A retried start has the same environment; another one is a conflict, which does not show either.
	keyed := func(env map[string]string) int {
		ans := p.do("POST", "/commands", map[string]any{"cmd": "true", "env": env}, "E2b-Sandbox-Id", other, "Idempotency-Key", "k")
		return ans.Status
	}
	env := p.env(50)
	if first, again, else_ := keyed(env), keyed(env), keyed(p.env(50)); first != 200 || again != 200 || else_ != http.StatusConflict {
		t.Errorf("keyed starts: %d, %d, %d", first, again, else_)
	}
	for range 50 {
		config, _ := json.Marshal(map[string]any{"server": map[string]string{"token": p.next()}})
		p.run(box, nil, "-c", "mcp-gateway --config '"+string(config)+"'")
	}
	p.do("POST", "/execute", map[string]any{"code": "1", "language": "python", "env_vars": p.env(50)}, "E2b-Sandbox-Id", box)
	for _, bad := range []map[string]string{{"A=" + p.next(): "x"}, {"A": p.next() + "\x00"}} {
		p.a.Do(t, "POST", "/commands", map[string]any{"cmd": "true", "env": bad}, "E2b-Sandbox-Id", box)
	}
	c := dialCodex(t, u.API, "/codex/"+box) // it reads the environment of the sandbox
	c.begin("")
	c.start("p", "true", "env", codexArgs{"CANARY": p.next()})
	c.closed("p")
	p.e2a()
	p.denied(box)
	name := p.template(100)
	built := p.create(name, 20)
	p.count(built, nil, 20)

	b := newBackendOn(t, u.API)
	b.json(201, "POST", "/session", map[string]any{"image": "base", "name": "sealed", "config": map[string]any{"environ": p.env(50)}}, nil)
	if _, raw := b.call(200, "GET", "/session/sealed", "", nil); strings.Count(string(raw), p.prefix) != 50 {
		t.Errorf("session: %s", raw)
	}
	b.call(200, "DELETE", "/session/sealed", "", nil)

	for _, path := range []string{
		"/v1/sandboxes", "/v1/sandboxes?limit=1", "/v1/usage", secretsPath, "/v1/audit", "/v2/sandboxes/" + box + "/logs", "/v1/timeline/" + box, "/v1/processes?limit=100",
		"/sandboxes", "/v2/sandboxes", "/sandboxes/" + box, "/v1/store/sandboxes", "/v1/store/sandboxes/" + box, "/v1/processes?sandbox=" + box,
		"/events/sandboxes", "/events/webhooks", "/secrets", "/templates", "/templates/" + name, "/metrics", "/api-keys",
	} {
		p.do("GET", path, nil)
	}
	// After a crash, the next run opens the same environments.
	u.Kill9()
	if err := u.Restart(); err != nil {
		t.Fatal(err)
	}
	p.count(box, map[string]string{"CANARY_X": p.next()}, 301)
	p.count(p.create(name, 1), nil, 1)
	if p.made < 1000 {
		t.Errorf("%d secrets, want 1000", p.made)
	}
	p.nowhere(t, u, "at run time")
	if err := u.Term(); err != nil {
		t.Fatal(err)
	}
	p.nowhere(t, u, "afterwards")
	if err := u.Restart(); err != nil { // ends the sandboxes
		t.Fatal(err)
	}
	if !p.in([]byte("x"+p.next())) || !p.in([]byte(base64.StdEncoding.EncodeToString([]byte("xy"+p.next()+"z")))) {
		t.Error("the search finds no secret")
	}
}
