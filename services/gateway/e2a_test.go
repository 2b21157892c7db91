package gateway_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway"
)

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// userFixture is a gateway where users sign up, with its relay and clock.
type userFixture struct {
	*fixture
	mail  *relay
	clock *clock
}

func newUserFixture(t *testing.T) *userFixture {
	t.Helper()
	u := &userFixture{newFixture(t), newRelay(t), &clock{now: time.Now()}}
	u.fixture = u.another(gateway.UsersConfig{PerMinute: 1000})
	return u
}

// another starts a gateway with a view of its own on the same log.
func (u *userFixture) another(cfg gateway.UsersConfig) *fixture {
	u.t.Helper()
	f := *u.fixture
	f.view = eventstest.View(u.t, f.log)
	if cfg.Mail == nil {
		cfg.Mail = u.mail.mailer(u.t)
	}
	cfg.Now = u.clock.Now
	f.serve(gateway.Config{
		Listen: "127.0.0.1:0", Users: cfg, Billing: gateway.BillingConfig{Price: usage.Price{CPUHour: 5000}, Now: u.clock.Now},
	})
	return &f
}

// as sends a request with a credential in Authorization; "" sends none.
func (f *fixture) as(credential, method, path, body string) answer {
	f.t.Helper()
	h := []string{"X-Api-Key", ""}
	if credential != "" {
		h = append(h, "Authorization", "Bearer "+credential)
	}
	return f.do(method, path, body, h...)
}

// object returns the members of a response.
func (a answer) object(t *testing.T, what string, code int, members ...string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil || a.code != code {
		t.Fatalf("%s: %d %s, want %d", what, a.code, a.body, code)
	}
	if got := slices.Sorted(maps.Keys(m)); members != nil && !slices.Equal(got, slices.Sorted(slices.Values(members))) {
		t.Errorf("%s: members %v, want %v", what, got, members)
	}
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Errorf("%s: content type %q", what, a.header.Get("Content-Type"))
	}
	return m
}

// failed checks that a response is an error with a code (E-016).
func (a answer) failed(t *testing.T, what string, code int, name string) {
	t.Helper()
	m := a.object(t, what, code, "error", "message")
	if m["error"] != name || m["message"] == "" {
		t.Errorf("%s: %s, want %s", what, a.body, name)
	}
}

func email(address string) string { return `{"email":"` + address + `"}` }

func entered(address, code string) string {
	return `{"email":"` + address + `","code":"` + code + `"}`
}

// tenant is a verified tenant.
type tenant struct {
	TenantID string `json:"tenant_id"`
	KeyID    string `json:"key_id"`
	Prefix   string
	APIKey   string `json:"api_key"`
	Token    string
}

// signUp signs up, or again, with an address.
func (u *userFixture) signUp(address string) (out tenant) {
	u.t.Helper()
	u.as("", "POST", "/v1/tenants", email(address)).want(u.t, "sign up", 200, `{"message":"OTP sent"}`)
	u.as("", "POST", "/v1/tenants/verify", entered(address, u.mail.code(u.t, address))).want(u.t, "verify", 200, "").decode(u.t, &out)
	return out
}

// logIn returns a user's token.
func (u *userFixture) logIn(address string) string {
	u.t.Helper()
	u.as("", "POST", "/v1/auth/login", email(address)).want(u.t, "log in", 201, `{"message":"OTP sent"}`)
	m := u.as("", "POST", "/v1/auth/verify-otp", entered(address, u.mail.code(u.t, address))).object(u.t, "verify", 200, "token", "user_id", "email")
	return m["token"].(string)
}

// E-255, E-256, E-262, E-263, E-265, E-267 to E-273: from an address to a tenant with keys.
func TestSignUp(t *testing.T) {
	u := newUserFixture(t)
	u.as("", "POST", "/v1/tenants", email("You@Example.com")).want(t, "sign up", 200, `{"message":"OTP sent"}`)
	code := u.mail.code(t, "you@example.com")
	made := u.as("", "POST", "/v1/tenants/verify", entered("you@example.COM", code)).object(t, "verify", 200,
		"tenant_id", "key_id", "prefix", "api_key", "plan_tier", "created_at", "token")
	for member, form := range map[string]string{
		"tenant_id": `^usr_[0-9a-f]{32}$`, "key_id": `^key_[0-9a-f]{16}$`, "prefix": `^e2a_[0-9a-f]{4}$`, "api_key": `^e2a_[0-9a-f]{64}$`,
		"plan_tier": `^free$`, "created_at": `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, "token": `^eyJ[^.]+\.[^.]+\.[^.]+$`,
	} {
		if v, _ := made[member].(string); !regexp.MustCompile(form).MatchString(v) {
			t.Errorf("%s is %q, want %s", member, v, form)
		}
	}
	key, token := made["api_key"].(string), made["token"].(string)
	if !strings.HasPrefix(key, made["prefix"].(string)) {
		t.Errorf("prefix %v of another key", made["prefix"])
	}
	for name, credential := range map[string]string{"a key": key, "a token": token} {
		me := u.as(credential, "GET", "/v1/tenants/me", "").object(t, name, 200, "tenant_id", "email", "created_at", "plan")
		if me["tenant_id"] != made["tenant_id"] || me["email"] != "you@example.com" || me["plan"] != "free" {
			t.Errorf("%s: %v", name, me)
		}
		keys := u.as(credential, "GET", "/v1/tenants/me/api-keys", "").object(t, name, 200, "keys")["keys"].([]any)
		if got := slices.Sorted(maps.Keys(keys[0].(map[string]any))); len(keys) != 1 || !slices.Equal(got, []string{"created_at", "key_id", "plan_tier", "prefix", "revoked"}) {
			t.Errorf("%s: %v", name, keys)
		}
	}
	second := u.as(key, "POST", "/v1/tenants/me/api-keys", "").object(t, "issue", 200, "key_id", "prefix", "api_key", "plan_tier", "created_at")
	other := second["api_key"].(string)
	u.as(other, "GET", "/v1/tenants/me", "").want(t, "the other key", 200, "")

	again := u.signUp("you@example.com")
	if again.TenantID != made["tenant_id"] || again.APIKey == key {
		t.Errorf("signed up again: %+v", again)
	}
	u.as(key, "DELETE", "/v1/tenants/me/api-keys/"+second["key_id"].(string), "").want(t, "revoke", 204, "")
	u.as(other, "GET", "/v1/tenants/me", "").failed(t, "a revoked key", 401, "unauthenticated")
	u.as(key, "DELETE", "/v1/tenants/me/api-keys/"+second["key_id"].(string), "").want(t, "revoke again", 204, "")
	u.as(key, "DELETE", "/v1/tenants/me/api-keys/"+made["key_id"].(string), "").want(t, "a key revokes itself", 204, "")
	u.as(key, "GET", "/v1/tenants/me", "").failed(t, "a revoked key", 401, "unauthenticated")
	var list struct {
		Keys []struct {
			KeyID   string `json:"key_id"`
			Revoked bool
		}
	}
	a := u.as(again.APIKey, "GET", "/v1/tenants/me/api-keys", "").want(t, "list", 200, "")
	a.decode(t, &list)
	if len(list.Keys) != 3 || !list.Keys[0].Revoked || !list.Keys[1].Revoked || list.Keys[2].Revoked || list.Keys[2].KeyID != again.KeyID {
		t.Errorf("%+v", list)
	}
	for _, secret := range []string{key, other, again.APIKey} {
		if strings.Contains(a.body, secret) {
			t.Error("a list shows a key")
		}
	}
}

// E-003 to E-005, E-300 to E-306: each route accepts one credential.
func TestLogIn(t *testing.T) {
	u := newUserFixture(t)
	u.as("", "POST", "/v1/auth/register", email("you@example.com")).want(t, "register", 201, `{"message":"OTP sent"}`)
	m := u.as("", "POST", "/v1/auth/verify-otp", entered("you@example.com", u.mail.code(t, "you@example.com"))).object(t, "verify", 200, "token", "user_id", "email")
	token := m["token"].(string)
	if m["email"] != "you@example.com" || !strings.HasPrefix(m["user_id"].(string), "usr_") {
		t.Errorf("%v", m)
	}
	made := u.as(token, "POST", "/v1/api-keys", "").object(t, "issue", 201, "key_id", "key", "prefix")
	live := made["key"].(string)
	if !regexp.MustCompile(`^e2a_live_[A-Za-z0-9]{1,43}$`).MatchString(live) || made["prefix"] != live[:12] {
		t.Errorf("%v", made)
	}
	u.as(live, "GET", "/v1/tenants/me", "").want(t, "a live key", 200, "")
	u.do("GET", "/v2/sandboxes", "", "X-Api-Key", live).want(t, "a live key for E2B's API", 200, "")
	for _, r := range []string{"GET /v1/api-keys", "POST /v1/api-keys", "DELETE /v1/api-keys/" + made["key_id"].(string)} {
		method, path, _ := strings.Cut(r, " ")
		u.as(live, method, path, "").failed(t, r+" with a key", 401, "unauthenticated")
		u.as("", method, path, "").failed(t, r+" without a credential", 401, "unauthenticated")
		u.as(token+"x", method, path, "").failed(t, r+" with a changed token", 401, "unauthenticated")
	}
	for _, r := range []string{"POST /v1/tenants/me/api-keys", "DELETE /v1/tenants/me/api-keys/" + made["key_id"].(string), "GET /v1/sessions", "GET /v2/sandboxes"} {
		method, path, _ := strings.Cut(r, " ")
		if a := u.as(token, method, path, ""); a.code != 401 {
			t.Errorf("%s with a token: %d %s", r, a.code, a.body)
		}
	}
	list := u.as(token, "GET", "/v1/api-keys", "").object(t, "list", 200, "api_keys")["api_keys"].([]any)
	if one := list[0].(map[string]any); len(list) != 1 || one["key_id"] != made["key_id"] || one["revoked"] != false || one["prefix"] != made["prefix"] || one["plan_tier"] != "free" || one["created_at"] == nil || len(one) != 5 {
		t.Errorf("%v", list)
	}
	bob := u.logIn("bob@example.com")
	unknown := u.as(bob, "DELETE", "/v1/api-keys/key_0123456789abcdef", "")
	unknown.failed(t, "an unknown key", 404, "not_found")
	u.as(bob, "DELETE", "/v1/api-keys/"+made["key_id"].(string), "").want(t, "another user's key", 404, unknown.body)
	u.as(token, "DELETE", "/v1/api-keys/"+made["key_id"].(string), "").want(t, "revoke", 200, `{"status":"revoked"}`)
	u.as(live, "GET", "/v1/tenants/me", "").failed(t, "a revoked key", 401, "unauthenticated")

	u.clock.move(time.Hour - time.Second)
	u.as(token, "GET", "/v1/api-keys", "").want(t, "a token before its end", 200, "")
	u.clock.move(time.Second)
	u.as(token, "GET", "/v1/api-keys", "").failed(t, "an expired token", 401, "unauthenticated")
}

// E-264, E-274, E-303: what a code is worth.
func TestCodes(t *testing.T) {
	u := newUserFixture(t)
	const you = "you@example.com"
	send := func() string {
		u.clock.move(time.Hour)
		u.as("", "POST", "/v1/auth/login", email(you)).want(t, "log in", 201, "")
		return u.mail.code(t, you)
	}
	try := func(what, address, code string, want int) {
		t.Helper()
		a := u.as("", "POST", "/v1/auth/verify-otp", entered(address, code))
		if want == 200 {
			a.want(t, what, 200, "")
			return
		}
		a.want(t, what, 401, `{"error":"invalid_code","message":"the code is wrong, or it is not valid any more"}`)
	}
	other := func(code string) string {
		if code == "000000" {
			return "000001"
		}
		return "000000"
	}
	code := send()
	try("another address", "other@example.com", code, 401)
	try("no address", "you", code, 401)
	try("a wrong code", you, other(code), 401)
	try("the code", you, code, 200)
	try("the code again", you, code, 401)
	code = send()
	for range 5 {
		try("a wrong code", you, other(code), 401)
	}
	try("the right code after five wrong ones", you, code, 401)
	try("a new code", you, send(), 200)
	code = send()
	u.clock.move(10*time.Minute - time.Second)
	try("a code before its end", you, code, 200)
	code = send()
	u.clock.move(10 * time.Minute)
	try("an expired code", you, code, 401)
	code = send()
	send()
	try("a code that was replaced", you, code, 401)
}

// E-264, E-273, E-274: of concurrent attempts at two gateways one succeeds, and of any number
// of wrong ones five count.
func TestCodesAreUsedOnce(t *testing.T) {
	u := newUserFixture(t)
	second := u.another(gateway.UsersConfig{PerMinute: 1000})
	gateways := []*fixture{u.fixture, second}
	const you = "you@example.com"
	for round := range 2 {
		u.clock.move(time.Hour)
		u.as("", "POST", "/v1/tenants", email(you)).want(t, "sign up", 200, "")
		code := u.mail.code(t, you)
		var mu sync.Mutex
		codes := map[int]int{}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				a := gateways[i%2].as("", "POST", "/v1/tenants/verify", entered(you, code))
				mu.Lock()
				defer mu.Unlock()
				codes[a.code]++
			})
		}
		all.Wait()
		if codes[200] != 1 || codes[401] != 19 {
			t.Errorf("round %d: %v", round, codes)
		}
	}
	u.clock.move(time.Hour)
	u.as("", "POST", "/v1/tenants", email(you)).want(t, "sign up", 200, "")
	code := u.mail.code(t, you)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if a := gateways[i%2].as("", "POST", "/v1/tenants/verify", entered(you, "x"+code)); a.code != 401 {
				t.Errorf("a wrong code: %d %s", a.code, a.body)
			}
		})
	}
	all.Wait()
	u.as("", "POST", "/v1/tenants/verify", entered(you, code)).failed(t, "after five of them", 401, "invalid_code")
}

// E-258, E-259, E-301: limits hold for all routes and gateways together, and after a restart.
func TestSignUpLimits(t *testing.T) {
	u := newUserFixture(t)
	second := u.another(gateway.UsersConfig{PerMinute: 1000})
	slow := func(a answer, what, wait string) {
		t.Helper()
		a.failed(t, what, 429, "throttled")
		if got := a.header.Get("Retry-After"); got != wait {
			t.Errorf("%s: Retry-After %q, want %s", what, got, wait)
		}
	}
	const you = "you@example.com"
	u.as("", "POST", "/v1/tenants", email(you)).want(t, "sign up", 200, "")
	u.clock.move(time.Minute)
	second.as("", "POST", "/v1/auth/register", email(you)).want(t, "register", 201, "")
	u.as("", "POST", "/v1/auth/login", email("YOU@example.com")).want(t, "log in", 201, "")
	slow(second.as("", "POST", "/v1/tenants", email(you)), "the fourth", "3540")
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	second = u.another(gateway.UsersConfig{PerMinute: 1000})
	slow(second.as("", "POST", "/v1/auth/login", email(you)), "after a restart", "3540")
	u.as("", "POST", "/v1/auth/login", email("other@example.com")).want(t, "another address", 201, "")
	u.clock.move(59 * time.Minute)
	u.as("", "POST", "/v1/auth/login", email(you)).want(t, "an hour after the first", 201, "")
	if n := len(u.mail.mails); n != 5 {
		t.Errorf("%d mails were sent", n)
	}

	trusting := gateway.UsersConfig{PerMinute: 3, Proxies: mustPrefixes(t, "127.0.0.0/8")}
	a, b := u.another(trusting), u.another(trusting)
	from := func(f *fixture, client, address string) answer {
		return f.do("POST", "/v1/auth/login", email(address), "X-Api-Key", "", "X-Forwarded-For", client)
	}
	for i, f := range []*fixture{a, b, a} {
		from(f, "192.0.2.1", "user"+string(rune('a'+i))+"@example.com").want(t, "many addresses", 201, "")
	}
	slow(from(b, "192.0.2.1", "userd@example.com"), "of one source", "60")
	slow(b.do("POST", "/v1/auth/verify-otp", entered(you, "1"), "X-Api-Key", "", "X-Forwarded-For", "203.0.113.9, 192.0.2.1"), "another route, with a forged source", "60")
	from(b, "192.0.2.2", "userd@example.com").want(t, "another source", 201, "")
	u.clock.move(time.Minute)
	from(a, "192.0.2.1", "userf@example.com").want(t, "a minute later", 201, "")
}

// E-260: a mail that is not accepted is a 500, is not counted, and leaves no valid code.
func TestMailThatCannotBeSent(t *testing.T) {
	u := newUserFixture(t)
	silent, err := gateway.NewRelay(silentRelay(t), "a@example.com", 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := gateway.NewRelay("smtp://127.0.0.1:1", "a@example.com", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	u.mail.refuse.Store(true)
	for name, f := range map[string]*fixture{
		"refused": u.fixture, "silent": u.another(gateway.UsersConfig{Mail: silent, PerMinute: 1000}), "closed": u.another(gateway.UsersConfig{Mail: closed, PerMinute: 1000}),
	} {
		for range 4 {
			f.as("", "POST", "/v1/tenants", email("you@example.com")).failed(t, name, 500, "mail_failed")
		}
	}
	u.mail.refuse.Store(false)
	u.signUp("you@example.com")
}

// E-261: the test mode is off by default, and refused where others can reach it.
func TestSignUpTestMode(t *testing.T) {
	u := newUserFixture(t)
	const qa, near = "a@e2a-qa.test", "a@x.e2a-qa.test"
	u.as("", "POST", "/v1/tenants", email(qa)).want(t, "off", 200, `{"message":"OTP sent"}`)
	u.mail.code(t, qa)
	on := u.another(gateway.UsersConfig{TestMode: true, PerMinute: 1000})
	m := on.as("", "POST", "/v1/tenants", email("b@E2A-QA.test")).object(t, "on", 200, "message", "verify_code")
	on.as("", "POST", "/v1/tenants/verify", entered("b@e2a-qa.test", m["verify_code"].(string))).want(t, "verify", 200, "")
	if len(u.mail.mails) != 0 {
		t.Error("a mail was sent")
	}
	on.as("", "POST", "/v1/tenants", email(near)).want(t, "another domain", 200, `{"message":"OTP sent"}`)
	u.mail.code(t, near)
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	err = gateway.Run(t.Context(), gateway.Config{Log: u.log, View: u.view, APIKey: key, Listener: ln, Users: gateway.UsersConfig{TestMode: true}})
	if err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("on all addresses: %v", err)
	}
}

// E-271: a revoked key is rejected by every gateway within a second.
func TestRevocationReachesEveryGateway(t *testing.T) {
	u := newUserFixture(t)
	gateways := []*fixture{u.another(gateway.UsersConfig{}), u.another(gateway.UsersConfig{})}
	for i := range 5 {
		made := u.signUp("you" + string(rune('a'+i)) + "@example.com")
		for _, f := range gateways {
			f.as(made.APIKey, "GET", "/v1/tenants/me", "").want(t, "a new key at another gateway", 200, "")
			f.as(made.Token, "GET", "/v1/tenants/me", "").want(t, "a new token at another gateway", 200, "")
		}
		u.as(made.APIKey, "DELETE", "/v1/tenants/me/api-keys/"+made.KeyID, "").want(t, "revoke", 204, "")
		begun := time.Now()
		for _, f := range gateways {
			for f.as(made.APIKey, "GET", "/v1/tenants/me", "").code != 401 {
				if d := time.Since(begun); d > 10*time.Second {
					t.Fatalf("accepted after %v", d)
				}
			}
		}
		t.Logf("rejected everywhere after %v", time.Since(begun))
	}
}

// E-266: the store has two hashes of each key, and not the key itself.
func TestKeysAreStoredAsHashes(t *testing.T) {
	u := newUserFixture(t)
	made := u.signUp("you@example.com")
	live := u.as(u.logIn("you@example.com"), "POST", "/v1/api-keys", "").object(t, "issue", 201)["key"].(string)
	changed, stop := u.view.Changes()
	defer stop()
	for hashed := 0; hashed < 2; {
		hashed = 0
		for _, k := range u.view.Keys(made.TenantID) {
			if k.Hashed {
				hashed++
			}
		}
		if hashed < 2 {
			select {
			case <-changed:
			case <-t.Context().Done():
				t.Fatal("no slow hash is stored")
			}
		}
	}
	hashes := 0
	err := filepath.WalkDir(u.srv.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, secret := range []string{made.APIKey, made.APIKey[4:], live, made.Token} {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s contains a secret", path)
			}
		}
		hashes += bytes.Count(raw, []byte("$2a$10$"))
		return err
	})
	if err != nil || hashes != 2 {
		t.Errorf("%d slow hashes, %v", hashes, err)
	}
}

// Keys and tenants that were not made by signing up keep working at e2a's routes.
func TestOperatorsKeysAtTheRoutesOfTenants(t *testing.T) {
	u := newUserFixture(t)
	for name, k := range map[string]string{"default": key, "bob": bobKey} {
		me := u.as(k, "GET", "/v1/tenants/me", "").object(t, name, 200)
		if me["tenant_id"] != name || me["email"] != "" {
			t.Errorf("%v", me)
		}
	}
	made := u.as(bobKey, "POST", "/v1/tenants/me/api-keys", "").object(t, "issue", 200)["api_key"].(string)
	u.do("GET", "/api-keys", "", "X-Api-Key", made).want(t, "E2B's list", 200, "")
	if !catalog.IsUserKey(made) || catalog.IsUserKey(bobKey) {
		t.Error("the form of keys")
	}
	user := u.signUp("you@example.com")
	u.do("POST", "/v2/sandboxes", base, "X-Api-Key", user.APIKey).want(t, "a user's sandbox", 201, "")
	u.do("GET", "/v1/hosts", "", "X-Api-Key", user.APIKey).wantError(t, "an operator's route", 403)
}

// E-255, E-257, E-300, E-302: bodies that are rejected before anything is stored or sent.
func TestSignUpRejectsBadBodies(t *testing.T) {
	u := newUserFixture(t)
	routes := []string{"/v1/tenants", "/v1/tenants/verify", "/v1/auth/register", "/v1/auth/login", "/v1/auth/verify-otp"}
	bodies := []badBody{
		{"nothing", "", nil}, {"no email", "{}", nil}, {"an empty email", email(""), nil}, {"null", `{"email":null,"code":null}`, nil},
		{"another case", `{"EMAIL":"you@example.com","CODE":"123456"}`, nil}, {"twice", `{"email":"you@example.com","email":"me@example.com","code":"123456"}`, nil},
		{"a long body", `{"email":"you@example.com","code":"` + strings.Repeat("1", 16<<10) + `"}`, nil},
		{"a number as code", `{"email":"you@example.com","code":123456,"email":"x"}`, nil},
	}
	for _, b := range append(bodies, badBodies(t)...) {
		for _, r := range routes {
			a := u.send(t, "POST", r, b.body, append(b.headers, "X-Api-Key", "")...)
			if a.code != 400 && a.code != 413 && a.code != 415 || !strings.HasPrefix(a.body, `{"error":"`) {
				t.Errorf("%s: %s: %d %.200s", b.name, r, a.code, a.body)
			}
		}
	}
	for _, address := range []string{"you", "you@localhost", "a@b@example.com", "you@example.com\\r\\nBcc: me@example.com", "\\ud800@example.com", strings.Repeat("a", 300) + "@example.com"} {
		for _, r := range []string{routes[0], routes[2], routes[3]} {
			u.as("", "POST", r, email(address)).failed(t, r+" with "+address, 400, "invalid")
		}
	}
	if n := len(u.mail.mails); n != 0 {
		t.Errorf("%d mails were sent", n)
	}
	user := u.signUp("you@example.com")
	for _, id := range []string{"key_", "x", "key_%2e%2e", "key_*", "key_%3e", "key_" + strings.Repeat("0", 4000)} {
		u.as(user.APIKey, "DELETE", "/v1/tenants/me/api-keys/"+id, "").failed(t, "the key "+id[:min(12, len(id))], 404, "not_found")
	}
}
