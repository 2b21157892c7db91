package gateway_test

import (
	"cmp"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/openapi"
)

// operation is an operation of e2a in the OpenAPI document.
type operation struct {
	method, path string
	credentials  []string // names of security schemes; none: public
	fields       map[string]string
	takesJSON    bool // it has a body of JSON
	params       []string
}

func (o *operation) String() string { return o.method + " " + o.path }

// schema is the part of a JSON schema that the tests read.
type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
}

// e2aOperations returns the operations of the document, so that a new route is tested without a change here.
func e2aOperations(t *testing.T) (all []operation) {
	t.Helper()
	raw, err := openapi.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
		Comps struct {
			Schemas map[string]schema
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			var op struct {
				Tags        []string
				Security    []map[string][]string
				Parameters  []struct{ Name, In string }
				RequestBody struct {
					Content map[string]struct{ Schema schema }
				}
			}
			if doc.Paths[path][method] == nil {
				continue
			}
			if err := json.Unmarshal(doc.Paths[path][method], &op); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(op.Tags, "e2a") {
				continue
			}
			o := operation{method: strings.ToUpper(method), path: path, fields: map[string]string{}}
			for _, s := range op.Security {
				o.credentials = slices.AppendSeq(o.credentials, maps.Keys(s))
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					o.params = append(o.params, p.Name)
				}
			}
			media, ok := op.RequestBody.Content["application/json"]
			o.takesJSON = ok
			s := media.Schema
			if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
				s = doc.Comps.Schemas[name]
			}
			for name, p := range s.Properties {
				if r, ok := strings.CutPrefix(p.Ref, "#/components/schemas/"); ok {
					p = doc.Comps.Schemas[r]
				}
				o.fields[name] = fmt.Sprint(p.Type)
			}
			all = append(all, o)
		}
	}
	if len(all) < 45 {
		t.Fatalf("%d operations", len(all))
	}
	return all
}

// things are what a tenant has.
type things struct {
	tenant
	vm, session, jwt, bundle, key, app string
}

// hostileFixture is a gateway with two tenants.
type hostileFixture struct {
	*userFixture
	you, other things
}

func newHostileFixture(t *testing.T) *hostileFixture {
	t.Helper()
	u := newUserFixture(t)
	u.withRuntimes()
	u.fixture = u.another(gateway.UsersConfig{PerMinute: 1_000_000, Requests: 1_000_000, Catalogue: 1_000_000})
	return &hostileFixture{u, u.things("you"), u.things("other")}
}

// things signs up and creates one of each thing.
func (u *userFixture) things(name string) (x things) {
	u.t.Helper()
	x.tenant = u.signUp(name + "@example.com")
	x.vm = u.newVM(x.APIKey, `{"template":"standard","idle_timeout_seconds":7200}`)
	x.bundle = name + "-keys"
	u.as(x.APIKey, "POST", "/v1/tenants/me/secrets", `{"name":"`+x.bundle+`","values":{"A":"b"}}`).want(u.t, "bundle", 201, "")
	var s chat
	u.as(x.APIKey, "POST", "/v1/sessions", sessionBody).want(u.t, "session", 201, "").decode(u.t, &s)
	x.session, x.jwt = s.ID, s.JWT
	m := u.as(x.APIKey, "POST", "/v1/tenants/me/api-keys", "").object(u.t, "key", 200)
	x.key = m["key_id"].(string)
	x.app = name + "-app"
	url := u.as(x.Token, "PUT", "/v1/workspaces/"+x.app+"/default/files/f", "").link(u.t, "link")
	if code, body := uploadTo(u.t, url, "data"); code != 200 {
		u.t.Fatalf("upload: %d %s", code, body)
	}
	return x
}

var braces = regexp.MustCompile(`\{\w+\}`)

// at returns the path of an operation on what x has.
func (o *operation) at(x *things) string {
	return braces.ReplaceAllStringFunc(o.path, func(name string) string {
		switch before, _, _ := strings.Cut(o.path, name); {
		case strings.HasSuffix(before, "/sandboxes/"):
			return x.vm
		case strings.HasSuffix(before, "/sessions/"):
			return x.session
		case strings.HasSuffix(before, "/secrets/"):
			return x.bundle
		case strings.HasSuffix(before, "/api-keys/"):
			return x.key
		case name == "{app_id}":
			return x.app
		case name == "{capset_id}":
			return "default"
		}
		return "f"
	})
}

// credential returns what x authenticates with for an operation.
func (o *operation) credential(x *things) string {
	switch {
	case slices.Contains(o.credentials, "bearer"):
		return x.APIKey
	case slices.Contains(o.credentials, "token"):
		return x.Token
	case slices.Contains(o.credentials, "session"):
		return x.jwt
	}
	return ""
}

// query returns a query with what operations require.
func (o *operation) query() string {
	switch {
	case strings.HasSuffix(o.path, "/files"):
		return "?path=/tmp/x"
	case strings.HasSuffix(o.path, "/daily"):
		return "?from=2026-01-01&to=2026-01-02"
	}
	return ""
}

// fixed checks an error in the form of e2a's family (E-016).
func (a answer) fixed(t *testing.T, what string) {
	t.Helper()
	var m map[string]any
	if a.code < 400 || a.code >= 500 && a.code != 501 && a.code != 503 {
		t.Errorf("%s: %d %.200s", what, a.code, a.body)
		return
	}
	if err := json.Unmarshal([]byte(a.body), &m); err != nil || len(m) != 2 {
		t.Errorf("%s: %d %.200s: not an error and a message", what, a.code, a.body)
		return
	}
	code, _ := m["error"].(string)
	message, _ := m["message"].(string)
	if code == "" || message == "" || code == "internal" || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Errorf("%s: %d %.200s", what, a.code, a.body)
	}
}

// passed checks a response that may be a success.
func (a answer) passed(t *testing.T, what string) {
	t.Helper()
	if a.code >= 400 {
		a.fixed(t, what)
	}
}

// hostileBodies returns bodies that an operation must reject.
func (o *operation) hostileBodies(t *testing.T) map[string]badBody {
	t.Helper()
	out := map[string]badBody{}
	for _, b := range badBodies(t) {
		out[b.name] = b
	}
	// Without fields of e2a's, these are objects with unknown members.
	delete(out, "wrong types")
	delete(out, "wrong types within")
	first := cmp.Or(slices.Sorted(maps.Keys(o.fields))...)
	add := func(name, body string) { out[name] = badBody{name: name, body: body} }
	add("trailing data", `{}x`)
	add("not a number", `{"`+first+`":NaN}`)
	add("a huge number", `{"`+first+`":1e999}`)
	add("a repeated member", `{"`+first+`":"a","`+first+`":"a"}`)
	add("a deep member", `{"`+first+`":`+strings.Repeat(`[`, 100_000)+strings.Repeat(`]`, 100_000)+`}`)
	add("a byte order mark before an object", "\xef\xbb\xbf{}")
	add("NUL", "{\"a\":\"\x00\"}")
	add("a large body", `{"`+first+`":"`+strings.Repeat("x", 2<<20)+`"}`)
	for name, kind := range o.fields {
		wrong := []string{`7`, `[]`, `{"a":1}`, `true`}
		switch {
		case strings.Contains(kind, "integer"):
			wrong = []string{`"x"`, `1.5`, `1e999`, `-1`, `[]`, `{}`, `99999999999999999999999`}
		case strings.Contains(kind, "boolean"):
			wrong = []string{`"x"`, `7`, `[]`}
		case strings.Contains(kind, "object"):
			wrong = []string{`"x"`, `7`, `[]`}
		case strings.Contains(kind, "array"):
			wrong = []string{`"x"`, `7`, `{}`, `[7]`}
		case kind == "<nil>":
			wrong = []string{`"x"`, `7`}
		}
		for _, w := range wrong {
			add(name+" "+w, `{"`+name+`":`+w+`}`)
		}
	}
	return out
}

// TORTURE F 104, 105, 107, 122: bodies that are not what the document describes.
func TestE2ARejectsHostileBodies(t *testing.T) {
	f := newHostileFixture(t)
	for _, o := range e2aOperations(t) {
		if !o.takesJSON {
			continue
		}
		for _, b := range o.hostileBodies(t) {
			h := append([]string{"X-Api-Key", "", "Authorization", "Bearer " + o.credential(&f.you)}, b.headers...)
			f.send(t, o.method, o.at(&f.you), b.body, h...).fixed(t, o.String()+": "+b.name)
		}
		f.send(t, o.method, o.at(&f.you), `{"`+strings.Repeat(`x":1,"`, 100_000)+`x":1}`, "X-Api-Key", "", "Authorization", "Bearer "+o.credential(&f.you)).passed(t, o.String()+": many members")
	}
	f.unchanged(t)
}

// TORTURE F 104: bodies of routes that read none, other content types and codings.
func TestE2AIgnoresWhatItDoesNotRead(t *testing.T) {
	f := newHostileFixture(t)
	for _, o := range e2aOperations(t) {
		if o.method == "DELETE" || o.takesJSON && o.method != "POST" {
			continue // what follows needs the things
		}
		for _, mime := range []string{"text/xml", "multipart/form-data", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ";;;", strings.Repeat("x", 4096)} {
			f.send(t, o.method, o.at(&f.you)+o.query(), `{"a":"b"}`, "X-Api-Key", "", "Authorization", "Bearer "+o.credential(&f.you), "Content-Type", mime).passed(t, o.String()+": "+mime)
		}
	}
	f.unchanged(t)
}

// unchanged checks that nothing of a tenant was changed by rejected requests.
func (f *hostileFixture) unchanged(t *testing.T) {
	t.Helper()
	for _, x := range []*things{&f.you, &f.other} {
		f.as(x.APIKey, "GET", "/v1/sandboxes/"+x.vm, "").want(t, "sandbox", 200, "")
		f.as(x.APIKey, "GET", "/v1/tenants/me/secrets/"+x.bundle, "").want(t, "bundle", 200, "")
	}
}

// TORTURE F 110, 111, 112, 122, 124: hostile values in paths and queries.
func TestE2ARejectsHostilePaths(t *testing.T) {
	f := newHostileFixture(t)
	refused := []string{"%2f", "%2F..%2F", "a%2Fb", "%00", "a%00", "%5c", "..%5C"}
	other := []string{"*", "%3E", "a.b", "a%20b", "a%0d%0aX:%20y", "%e2%80%ae", "%c0%ae%c0%ae", "%ff", "%252e%252e", "%252f", "a%0a", strings.Repeat("x", 10_000), "é", "-1", "9999999999999999999999"}
	for _, o := range e2aOperations(t) {
		h := []string{"X-Api-Key", "", "Authorization", "Bearer " + o.credential(&f.you)}
		for _, name := range braces.FindAllString(o.path, -1) {
			at := func(value string) string {
				p := operation{path: strings.Replace(o.path, name, "\x00", 1)}
				return strings.Replace(p.at(&f.you), "\x00", value, 1)
			}
			for _, value := range refused {
				a := f.send(t, o.method, at(value), "", h...)
				if a.fixed(t, o.String()+": "+value); a.code != 400 {
					t.Errorf("%s with %s: %d", &o, value, a.code)
				}
			}
			for _, value := range other {
				f.send(t, o.method, at(value), "", h...).passed(t, o.String()+": "+value)
			}
			for _, value := range []string{"..", ".", "%2e%2e", "..;", "a//b", ""} { // they may name another route
				if a := f.send(t, o.method, at(value), "", h...); a.code >= 500 {
					t.Errorf("%s with %s: %d %s", &o, value, a.code, a.body)
				}
			}
		}
		if o.method == "GET" {
			for _, q := range append(o.params, "unknown") {
				for _, v := range []string{"", "-1", "0", "1e18", "99999999999999999999", "2147483648", "%00", "%ff", "..%2f..", "%0d%0a", "NaN", strings.Repeat("9", 5000)} {
					f.send(t, o.method, o.at(&f.you)+"?"+q+"="+v, "", h...).passed(t, o.String()+"?"+q+"="+v)
				}
			}
		}
	}
	f.unchanged(t)
}

// TORTURE F 103 to 105: the credential of every route.
func TestE2ARejectsHostileCredentials(t *testing.T) {
	f := newHostileFixture(t)
	revoked := f.as(f.you.APIKey, "POST", "/v1/tenants/me/api-keys", "").object(t, "key", 200)
	f.as(f.you.APIKey, "DELETE", "/v1/tenants/me/api-keys/"+revoked["key_id"].(string), "").want(t, "revoke", 204, "")
	forged := f.forged(t)
	forged["none"], forged["a revoked key"], forged["an unknown key"] = "", revoked["api_key"].(string), "e2a_"+strings.Repeat("0", 64)
	forged["8 KiB"], forged["a key and more"], forged["no UTF-8"] = strings.Repeat("x", 8<<10), f.you.APIKey+"0", "\xff\xfe"
	for _, o := range e2aOperations(t) {
		if len(o.credentials) == 0 {
			continue
		}
		wrong := maps.Clone(forged)
		for scheme, credential := range map[string]string{"bearer": f.you.APIKey, "token": f.you.Token, "session": f.you.jwt} {
			if !slices.Contains(o.credentials, scheme) {
				wrong["a "+scheme] = credential
			}
		}
		for name, credential := range wrong {
			a := f.as(credential, o.method, o.at(&f.you)+o.query(), "")
			if a.fixed(t, o.String()+": "+name); a.code != 401 {
				t.Errorf("%s with %s: %d %s", &o, name, a.code, a.body)
			}
		}
		valid := o.credential(&f.you)
		for _, h := range []string{"Basic " + valid, valid, "Bearer", "Bearer" + valid, "Bearer  ", "Bearer " + valid + ", Bearer x"} {
			if a := f.do(o.method, o.at(&f.you)+o.query(), "", "X-Api-Key", valid, "Authorization", h); a.code != 401 {
				t.Errorf("%s with Authorization %.10s: %d %s", &o, h, a.code, a.body)
			}
		}
	}
	f.unchanged(t)
}

// forged returns tokens of users and sessions that are not valid, also ones that the right key signs.
func (f *hostileFixture) forged(t *testing.T) map[string]string {
	t.Helper()
	secret, err := f.log.Secret(t.Context(), "sandbox-token")
	if err != nil {
		t.Fatal(err)
	}
	right := []byte((&core.Core{Config: core.Config{Secret: secret}}).DeriveKey("token of a conversation"))
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := func(key []byte, header, body string) string {
		text := encode([]byte(header)) + "." + encode([]byte(body))
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return text + "." + encode(mac.Sum(nil))
	}
	const hs = `{"alg":"HS256","typ":"JWT"}`
	claims := func(audience, exp string) string {
		return fmt.Sprintf(`{"aud":%q,"sub":%q,"tenant_id":%q,"user_id":%q,"chat_session_id":%q,"iat":1,"exp":%s}`, audience, f.you.TenantID, f.you.TenantID, f.you.TenantID, f.you.session, exp)
	}
	soon := fmt.Sprint(f.clock.Now().Add(time.Minute).Unix())
	good := claims("session", soon)
	byRSA := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode([]byte(good))
	sum := sha256.Sum256([]byte(byRSA))
	signature, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{
		"no algorithm":              encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(good)) + ".",
		"RS256":                     byRSA + "." + encode(signature),
		"RS256 by name":             signed(right, `{"alg":"RS256"}`, good),
		"another key":               signed([]byte("x"), hs, good),
		"no key":                    signed(nil, hs, good),
		"a path as key":             signed(nil, `{"alg":"HS256","kid":"../../dev/null"}`, claims("account", soon)),
		"another number of a key":   signed(right, `{"alg":"HS256","kid":"1"}`, claims("account", soon)),
		"its own key":               signed([]byte("k"), `{"alg":"HS256","jwk":{"kty":"oct","k":"aw"}}`, good),
		"an end with a fraction":    signed(right, hs, claims("session", soon+".5")),
		"an end as text":            signed(right, hs, claims("session", `"`+soon+`"`)),
		"an end that overflows":     signed(right, hs, claims("session", "1e20")),
		"an end in the past":        signed(right, hs, claims("session", "1")),
		"no end":                    signed(right, hs, claims("session", "null")),
		"another audience":          signed(right, hs, claims("runtime", soon)),
		"a changed token of a user": f.you.Token[:len(f.you.Token)-4] + "AAAA",
		"half a token":              f.you.Token[:len(f.you.Token)/2],
	}
	return out
}

// The credential that is signed like the forged ones, but is right, is accepted.
func TestForgedTokensDifferFromAValidOne(t *testing.T) {
	f := newHostileFixture(t)
	for name, token := range f.forged(t) {
		if token == f.you.jwt || token == f.you.Token {
			t.Errorf("%s is valid", name)
		}
	}
	if a := f.as(f.you.jwt, "GET", "/v1/sessions/"+f.you.session+"/ws", ""); a.code == 401 || a.code == 403 {
		t.Errorf("a valid token of a session: %d %s", a.code, a.body)
	}
}

// variable matches what a response repeats of a request: names, and links with them.
var variable = regexp.MustCompile(`"url":"[^"]*"|'(other|unknown)-keys'`)

// TORTURE F 115: with an id of another tenant, each route responds as with an unknown one, to the byte.
func TestE2ADoesNotDiscloseForeignIDs(t *testing.T) {
	f := newHostileFixture(t)
	unknown := things{vm: "sbx_" + strings.Repeat("z", len(f.other.vm)-4), session: f.other.session[:len(f.other.session)-4] + "zzzz", bundle: "unknown-keys", key: "key_0123456789abcdef", app: "unknown-app"}
	bodies := map[string]string{"POST /v1/sandboxes/{id}/exec": `{"command":"true"}`, "PUT /v1/tenants/me/secrets/{name}": `{"values":{"A":"b"}}`}
	same := func(o *operation, credential, body string, foreign, none string) {
		t.Helper()
		a, b := f.as(credential, o.method, foreign, body), f.as(credential, o.method, none, body)
		if a.code != b.code || variable.ReplaceAllString(a.body, "") != variable.ReplaceAllString(b.body, "") {
			t.Errorf("%s: %d %s, with an unknown id: %d %s", o, a.code, a.body, b.code, b.body)
		}
		if strings.Contains(o.path, "{id}") && a.code < 400 {
			t.Errorf("%s: %d %s", o, a.code, a.body)
		}
		a.passed(t, o.String())
	}
	for _, o := range e2aOperations(t) {
		if strings.Contains(o.path, "{") {
			same(&o, o.credential(&f.you), bodies[o.String()], o.at(&f.other)+o.query(), o.at(&unknown)+o.query())
		}
	}
	// A foreign bundle is an unknown one. A foreign session is not resumed, which is said (E-182).
	const withBundle = `{"template":"standard","llm":{"vendor":"openai"},"user_id":"u","secrets":[%q]}`
	a, b := f.as(f.you.APIKey, "POST", "/v1/sessions", fmt.Sprintf(withBundle, f.other.bundle)), f.as(f.you.APIKey, "POST", "/v1/sessions", fmt.Sprintf(withBundle, unknown.bundle))
	if a.code != 404 || b.code != 404 || variable.ReplaceAllString(a.body, "") != variable.ReplaceAllString(b.body, "") {
		t.Errorf("a foreign bundle: %d %s, an unknown one: %d %s", a.code, a.body, b.code, b.body)
	}
	f.as(f.you.APIKey, "POST", "/v1/sessions/resume", fmt.Sprintf(`{"chat_session_id":%q}`, f.other.session)).failed(t, "resume", 403, "cross_tenant_resume_denied")
	f.as(f.you.APIKey, "POST", "/v1/sessions/resume", fmt.Sprintf(`{"chat_session_id":%q}`, unknown.session)).failed(t, "resume", 404, "not_found")
	f.unchanged(t)
}
