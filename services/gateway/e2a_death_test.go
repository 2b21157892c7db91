package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
	"github.com/millrace/millrace/services/gateway/internal/sessiontoken"
)

// newDeathFixture returns a gateway that survives, and starts others that are cut off from the log before
// an append.
func newDeathFixture(t *testing.T) *deathFixture {
	t.Helper()
	srv := eventstest.StartListening(t)
	f := &fixture{t: t, srv: srv, log: eventstest.Open(t, srv)}
	f.view = eventstest.View(t, f.log)
	f.host = coretest.Run(t, f.log, f.view)
	f.withRuntimes()
	u := &userFixture{f, newRelay(t), &clock{now: time.Now()}}
	u.fixture = u.another(gateway.UsersConfig{PerMinute: 1000})
	d := &deathFixture{u, f.log.Conversations()}
	if err := d.conversations.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// deathFixture is a gateway that survives others.
type deathFixture struct {
	*userFixture
	conversations *conversation.Store
}

// victim is a gateway that dies between two appends.
type victim struct {
	*fixture
	ctx context.Context // ends with the gateway, as the connections of its clients do
	end func()
}

// victim starts a gateway that dies instead of its n-th append from now, or at end.
func (u *deathFixture) victim(t *testing.T, n int) *victim {
	t.Helper()
	proxy := eventstest.StartProxy(t, u.srv.Addr())
	f := *u.fixture
	f.log = proxy.Open(t)
	f.view = eventstest.View(t, f.log)
	ready := make(chan net.Addr, 1)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() {
		stopped <- gateway.Run(ctx, gateway.Config{
			Log: f.log, View: f.view, APIKey: key, KeyPair: pairs, Listen: "127.0.0.1:0", Ready: func(a net.Addr) { ready <- a },
			DrainTimeout: time.Millisecond, // a dead gateway does not drain
			Users:        gateway.UsersConfig{PerMinute: 1000, Mail: u.mail.mailer(t), Now: u.clock.Now},
		})
	}()
	v := &victim{&f, ctx, func() {
		proxy.Kill() // what stops it is not stored
		cancel()
	}}
	t.Cleanup(func() {
		v.end()
		<-stopped
	})
	select {
	case a := <-ready:
		f.addr = a.String()
	case err := <-stopped:
		t.Fatalf("gateway: %v", err)
	}
	dead := proxy.DieBefore(n, isFact)
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return v
}

// isFact reports whether a subject is of a record that a request changes, and not of a lease or of usage.
func isFact(subject string) bool {
	first, rest, _ := strings.Cut(subject, ".")
	switch first {
	case "attach":
		return !strings.HasPrefix(rest, "gateway.")
	case "conv", "sbx", "proc", "cmd", "user", "acct", "snap", "io":
		return true
	}
	return false
}

// try sends a request. ok is false if the gateway died first.
func (v *victim) try(credential, method, path, body string) (a answer, ok bool) {
	req, err := http.NewRequestWithContext(v.ctx, method, "http://"+v.addr+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, false
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(raw)}, err == nil && v.ctx.Err() == nil
}

// dial connects to a conversation. The connection ends with the gateway.
func (v *victim) dial(s *chat, query string) (*fws.Conn, error) {
	dialer := fws.Dialer{NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			context.AfterFunc(v.ctx, func() { conn.Close() })
		}
		return conn, err
	}}
	ws, _, err := dialer.DialContext(v.ctx, "ws://"+v.addr+"/v1/sessions/"+s.ID+"/ws"+query, http.Header{"Authorization": {"Bearer " + s.JWT}})
	return ws, err
}

// talk exchanges a message with a conversation and disconnects. It is false if the gateway died first.
func (v *victim) talk(t *testing.T, s *chat) bool {
	t.Helper()
	ws, err := v.dial(s, "")
	if err != nil {
		return false
	}
	defer ws.Close()
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	if ws.WriteMessage(fws.TextMessage, []byte("first")) != nil {
		return false
	}
	if _, raw, err := ws.ReadMessage(); err != nil {
		return false
	} else if string(raw) != "first" {
		t.Errorf("got %q", raw)
	}
	ws.WriteControl(fws.CloseMessage, fws.FormatCloseMessage(1000, ""), time.Now().Add(time.Minute))
	_, _, err = ws.ReadMessage()
	return fws.IsCloseError(err, 1000) && v.ctx.Err() == nil
}

// only fails unless one sandbox, and no other, runs for a conversation.
func (f *fixture) only(t *testing.T, what string, s *chat) {
	t.Helper()
	all := f.view.Sandboxes(func(b *sandbox.State) bool { return b.Request.Metadata["chat_session_id"] == s.ID && !b.Over() })
	if len(all) != 1 || all[0].ID != s.sandbox() {
		t.Errorf("%s: %d sandboxes run, want %s", what, len(all), s.VM)
	}
}

// deletes ends the sandbox of a conversation.
func (f *fixture) deletes(t *testing.T, s *chat) {
	t.Helper()
	if a := f.do("DELETE", "/sandboxes/"+string(s.sandbox()), ""); a.code != 204 && a.code != 404 {
		t.Errorf("delete: %d %s", a.code, a.body)
	}
}

// found resumes a conversation at another gateway, and checks that the client has it and that nothing is left.
func (f *fixture) found(t *testing.T, what, id string) {
	t.Helper()
	s := f.resumeSession(t, id)
	f.open(t, &s, "").echo(what)
	f.only(t, what, &s)
	if same := f.resumeSession(t, id); same != s {
		t.Errorf("%s: resumed again: %+v, before %+v", what, same, s)
	}
	f.deletes(t, &s)
}

// deaths are requests that a gateway serves when it dies. Each prepares a round, makes its request at the
// victim, and returns what another gateway has to find. act is false if the gateway died first.
var deaths = map[string]func(t *testing.T, u *deathFixture, round string) (act func(*victim) bool, check func(t *testing.T, done bool)){
	"create": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		body := strings.ReplaceAll(sessionBody, `"you"`, `"`+round+`"`)
		return func(v *victim) bool {
				a, ok := v.try(key, "POST", "/v1/sessions", body)
				if ok {
					a.want(t, round, 201, "")
				}
				return ok
			}, func(t *testing.T, done bool) {
				if err := u.conversations.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				all := u.conversations.List(func(c *conversation.State) bool { return c.Terms.EndUser == round })
				if len(all) > 1 || done && len(all) == 0 {
					t.Errorf("%s: %d conversations", round, len(all))
				}
				for i := range all {
					u.found(t, round, string(all[i].ID))
				}
				made := u.view.Sandboxes(func(s *sandbox.State) bool { return s.Request.Metadata["end_user_id"] == round && !s.Over() })
				if len(made) > 0 {
					t.Errorf("%s: %d sandboxes are left", round, len(made))
				}
			}
	},
	"resume": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		s := u.createSession(t, sessionBody)
		return func(v *victim) bool {
				a, ok := v.try(key, "POST", "/v1/sessions/resume", `{"chat_session_id":"`+s.ID+`"}`)
				if ok {
					a.want(t, round, 200, "")
				}
				return ok
			}, func(t *testing.T, _ bool) {
				u.found(t, round, s.ID)
			}
	},
	"attach and detach": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		s := u.createSession(t, sessionBody)
		return func(v *victim) bool { return v.talk(t, &s) }, func(t *testing.T, _ bool) {
			u.fixture.open(t, &s, "").echo("second")
			u.only(t, round, &s)
			u.found(t, round, s.ID)
		}
	},
	"delete": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		s := u.createSession(t, sessionBody)
		ws := u.fixture.open(t, &s, "")
		ws.echo("x")
		return func(v *victim) bool {
				a, ok := v.try(key, "DELETE", "/v1/sandboxes/"+s.VM, "")
				if ok {
					a.want(t, round, 200, "")
				}
				return ok
			}, func(t *testing.T, _ bool) {
				u.deletes(t, &s)
				ws.closed(1001, "sandbox destroyed")
				u.found(t, round, s.ID)
			}
	},
	"sign-up": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		address := round + "@example.com"
		return func(v *victim) bool {
				a, ok := v.try("", "POST", "/v1/tenants", email(address))
				if ok {
					a.want(t, round, 200, "")
				}
				return ok
			}, func(t *testing.T, done bool) {
				if done {
					u.mail.code(t, address) // replaced by the next one
				}
				made := u.signUp(address)
				u.as(made.APIKey, "GET", "/v1/tenants/me", "").want(t, round, 200, "")
			}
	},
	"verify": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		address := round + "@example.com"
		u.as("", "POST", "/v1/tenants", email(address)).want(t, "sign up", 200, "")
		code := u.mail.code(t, address)
		return func(v *victim) bool {
				a, ok := v.try("", "POST", "/v1/tenants/verify", entered(address, code))
				if ok {
					a.want(t, round, 200, "")
				}
				return ok
			}, func(t *testing.T, done bool) {
				a := u.as("", "POST", "/v1/tenants/verify", entered(address, code))
				if a.code != 401 && (done || a.code != 200) {
					t.Errorf("%s: the code again: %d %s", round, a.code, a.body)
				}
				first, again := u.signUp(address), u.signUp(address)
				if first.TenantID != again.TenantID || first.APIKey == again.APIKey {
					t.Errorf("%s: %+v, then %+v", round, first, again)
				}
				u.as(first.APIKey, "GET", "/v1/tenants/me", "").want(t, round, 200, "")
			}
	},
	"issue": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		made := u.signUp(round + "@example.com")
		return func(v *victim) bool {
				a, ok := v.try(made.APIKey, "POST", "/v1/tenants/me/api-keys", "")
				if ok {
					a.want(t, round, 200, "")
				}
				return ok
			}, func(t *testing.T, done bool) {
				n := len(u.as(made.APIKey, "GET", "/v1/tenants/me/api-keys", "").object(t, round, 200)["keys"].([]any))
				if n > 2 || done && n != 2 {
					t.Errorf("%s: %d keys", round, n)
				}
				next := u.as(made.APIKey, "POST", "/v1/tenants/me/api-keys", "").object(t, round, 200)
				u.as(next["api_key"].(string), "GET", "/v1/tenants/me", "").want(t, round, 200, "")
			}
	},
	"revoke": func(t *testing.T, u *deathFixture, round string) (func(*victim) bool, func(*testing.T, bool)) {
		made := u.signUp(round + "@example.com")
		next := u.as(made.APIKey, "POST", "/v1/tenants/me/api-keys", "").object(t, round, 200)
		revoked, path := next["api_key"].(string), "/v1/tenants/me/api-keys/"+next["key_id"].(string)
		return func(v *victim) bool {
				a, ok := v.try(made.APIKey, "DELETE", path, "")
				if ok {
					a.want(t, round, 204, "")
				}
				return ok
			}, func(t *testing.T, done bool) {
				if a := u.as(revoked, "GET", "/v1/tenants/me", ""); done && a.code != 401 {
					t.Errorf("%s: the revoked key: %d %s", round, a.code, a.body)
				}
				u.as(made.APIKey, "DELETE", path, "").want(t, round, 204, "")
				u.as(revoked, "GET", "/v1/tenants/me", "").failed(t, round, 401, "unauthenticated")
				u.as(made.APIKey, "GET", "/v1/tenants/me", "").want(t, round, 200, "")
			}
	},
}

// A gateway dies before each append of a request: another gateway completes what was asked for or the
// client repeats it, and nothing is left over.
func TestGatewayDiesBetweenAppends(t *testing.T) {
	for name, prepare := range deaths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newDeathFixture(t)
			type outcome struct {
				check func(*testing.T, bool)
				done  bool
			}
			var all []outcome
			const most = 60
			for n := 1; n == len(all)+1 && n <= most; n++ {
				act, check := prepare(t, u, fmt.Sprintf("%s%d", strings.ReplaceAll(name, " ", ""), n))
				v := u.victim(t, n)
				done := act(v)
				v.end()
				all = append(all, outcome{check, done})
				if done {
					break
				}
			}
			if last := all[len(all)-1]; !last.done || len(all) < 2 {
				t.Fatalf("%d rounds, the last one done: %v", len(all), last.done)
			}
			for _, o := range slices.Backward(all) {
				o.check(t, o.done)
			}
			t.Logf("died before %d appends", len(all)-1)
		})
	}
}

// E-193: a connection outlives its token.
func TestConnectionOutlivesItsToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.withRuntimes()
	s := f.createSession(t, sessionBody)
	ends := time.Now().Add(2 * time.Second)
	token, err := f.tokens(t).Client(sessiontoken.Claims{Tenant: "default", User: "default", Session: s.ID, Issued: time.Now().Unix(), Expires: ends.Unix()})
	if err != nil {
		t.Fatal(err)
	}
	short := s
	short.JWT = token
	ws := f.open(t, &short, "")
	ws.echo("before")
	for f.as(token, "GET", "/v1/sessions/"+s.ID+"/ws", "").code != 401 { // it has expired
		if time.Now().After(ends.Add(time.Minute)) {
			t.Fatal("the token does not expire")
		}
	}
	ws.echo("after")
}

// E-184, E-329: a resume needs the bundles of the conversation.
func TestResumeWithoutABundle(t *testing.T) {
	f := newFixture(t)
	f.withRuntimes()
	f.as(key, "POST", "/v1/tenants/me/secrets", `{"name":"llm","values":{"A":"1"}}`).want(t, "bundle", 201, "")
	s := f.createSession(t, strings.Replace(sessionBody, `{`, `{"secrets":["llm"],`, 1))
	f.as(key, "DELETE", "/v1/tenants/me/secrets/llm", "").want(t, "delete", 200, "")
	f.as(key, "POST", "/v1/sessions/resume", `{"chat_session_id":"`+s.ID+`"}`).failed(t, "resume", 502, "secret_bundle_not_found_at_resume")
	f.only(t, "after that", &s)
	f.open(t, &s, "").echo("the sandbox goes on")
	f.as(key, "POST", "/v1/tenants/me/secrets", `{"name":"llm","values":{"A":"2"}}`).want(t, "bundle", 201, "")
	next := f.resumeSession(t, s.ID)
	if env := f.runtimeEnv(t, next.sandbox()); next.VM == s.VM || env["A"] != "" {
		t.Errorf("resumed %+v", next)
	}
	f.open(t, &next, "").echo("resumed")
}

// The files of a conversation are saved after its client has left, also if its gateway dies first.
func TestFilesAreSavedAfterADeath(t *testing.T) {
	t.Parallel()
	u := newDeathFixture(t)
	s := u.createSession(t, sessionBody)
	v := u.victim(t, 1<<30)
	ws, err := v.dial(&s, "")
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	(&socket{t, ws}).echo("x")
	v.end()
	changed, stop := u.view.Changes()
	defer stop()
	late := time.After(time.Minute)
	for {
		if all := u.view.Snapshots(func(x *sandbox.Snapshot) bool { return x.Layer == "conversation "+s.ID }); len(all) > 0 {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatal("no files were saved")
		}
	}
}
