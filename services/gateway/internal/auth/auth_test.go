package auth_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

type keys map[[32]byte]catalog.Key

func (k keys) Key(_ context.Context, secret string) (catalog.Key, bool) {
	key, ok := k[sha256.Sum256([]byte(secret))]
	return key, ok
}

// users accept the token "user".
type users struct{}

func (users) UserToken(_ context.Context, token string) (core.Principal, bool) {
	if token != "user" {
		return core.Principal{}, false
	}
	return core.Principal{Tenant: "carol"}, true
}

type tokens struct{}

func (tokens) Bearer(_ context.Context, id sandbox.ID, token string) (core.Principal, error) {
	switch {
	case id == "igone":
		return core.Principal{}, kind.New(kind.NotFound, "", "", "gone")
	case id == "ifar":
		return core.Principal{}, kind.New(kind.Unavailable, "", "", "away")
	case token == "right":
		return core.Principal{Tenant: "alice", Sandbox: id}, nil
	}
	return core.Principal{}, kind.New(kind.Unauthenticated, "", "", "wrong")
}

func (tokens) IngressClient(_ context.Context, id sandbox.ID, traffic string) (core.Principal, error) {
	if id == "iprivate" && traffic != "traffic" {
		return core.Principal{}, kind.New(kind.Denied, "", "", "wrong")
	}
	return core.Principal{Tenant: "alice", Sandbox: id}, nil
}

func (tokens) VolumeBearer(_ context.Context, id sandbox.VolumeID, token string) (core.Principal, error) {
	if token != "right" {
		return core.Principal{}, kind.New(kind.Unauthenticated, "", "", "wrong")
	}
	return core.Principal{Tenant: "alice", Volume: id}, nil
}

func (tokens) Token(id sandbox.ID) string {
	if id == "i1" {
		return "right"
	}
	return "another's"
}

func (k tokens) Signer(by func(string) bool) (sandbox.ID, bool) {
	for _, id := range []sandbox.ID{"i2", "i1"} {
		if by(k.Token(id)) {
			return id, true
		}
	}
	return "", false
}

// A signed URL grants access to one file, and to nothing else.
func TestSignatures(t *testing.T) {
	sign := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "signature=v1_" + url.QueryEscape(base64.RawStdEncoding.EncodeToString(sum[:]))
	}
	const missing, invalid, expired, mismatch = "missing signature query parameter", "invalid signature", "signature is already expired", "access token present in header but does not match"
	future, past := fmt.Sprint(time.Now().Unix()+60), fmt.Sprint(time.Now().Unix()-60)
	tests := []struct {
		name, method, query, sandbox, token string
		want                                string // message of a 401
	}{
		{"a token", "GET", "path=/a", "i1", "right", ""},
		{"a wrong token", "GET", "path=/a", "i1", "wrong", mismatch},
		{"a wrong token beside a good signature", "GET", "path=/a&" + sign("/a:read::right"), "i1", "wrong", mismatch},
		{"nothing", "GET", "path=/a", "i1", "", missing},
		{"nothing, for no sandbox", "GET", "path=/a", "", "", missing},
		{"a signature", "GET", "path=/a&" + sign("/a:read::right"), "i1", "", ""},
		{"a signature without a sandbox", "GET", "path=/a&" + sign("/a:read::right"), "", "", ""},
		{"a token without a sandbox", "GET", "path=/a", "", "right", ""},
		{"a wrong token without a sandbox", "GET", "path=/a", "", "wrong", mismatch},
		{"a signature of an upload", "POST", sign(":write::right"), "", "", ""},
		{"a signature of a user", "GET", "path=/a&username=root&" + sign("/a:read:root:right"), "i1", "", ""},
		{"a signature of another user", "GET", "path=/a&username=root&" + sign("/a:read:user:right"), "i1", "", invalid},
		{"a signature of another file", "GET", "path=/b&" + sign("/a:read::right"), "i1", "", invalid},
		{"a signature for reading, used to write", "POST", "path=/a&" + sign("/a:read::right"), "i1", "", invalid},
		{"a signature of another sandbox", "GET", "path=/a&" + sign("/a:read::another's"), "i1", "", invalid},
		{"a signature with an unknown token", "GET", "path=/a&" + sign("/a:read::guess"), "", "", invalid},
		{"a signature that expires later", "GET", "path=/a&signature_expiration=" + future + "&" + sign("/a:read::right:"+future), "i1", "", ""},
		{"an expired signature", "GET", "path=/a&signature_expiration=" + past + "&" + sign("/a:read::right:"+past), "i1", "", expired},
		{"a changed expiration", "GET", "path=/a&signature_expiration=" + future + "&" + sign("/a:read::right:"+past), "i1", "", invalid},
		{"a removed expiration", "GET", "path=/a&" + sign("/a:read::right:"+past), "i1", "", invalid},
		{"an expiration that is not a number", "GET", "path=/a&signature_expiration=x&" + sign("/a:read::right:x"), "i1", "", expired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := fiber.New(fiber.Config{ErrorHandler: route.WriteError})
			app.Use(auth.New(keys{}, users{}, tokens{}, shares{}))
			var got core.Principal
			app.All("/files", func(c *fiber.Ctx) error {
				got = auth.From(c)
				return nil
			})
			req := httptest.NewRequest(tt.method, "/files?"+tt.query, nil)
			req.Header.Set("E2b-Sandbox-Id", tt.sandbox)
			req.Header.Set("X-Access-Token", tt.token)
			resp, err := app.Test(req)
			if err != nil {
				t.Fatal(err)
			}
			var body httperr.Body
			json.NewDecoder(resp.Body).Decode(&body)
			switch {
			case tt.want != "" && (resp.StatusCode != 401 || body.Code != 401 || body.Message != tt.want):
				t.Errorf("%d %+v, want %q", resp.StatusCode, body, tt.want)
			case tt.want == "" && (resp.StatusCode != 200 || got.Sandbox != "i1"):
				t.Errorf("%d %+v as %+v", resp.StatusCode, body, got)
			}
		})
	}
}

func TestMiddleware(t *testing.T) {
	const commands, control, codex = "/commands", "/v2/sandboxes", "/codex/i1"
	carol := core.Principal{Tenant: "carol"}
	alice, token := core.Principal{Tenant: "alice"}, core.Principal{Tenant: "alice", Sandbox: "i1"}
	tests := []struct {
		name, method, path string
		headers            map[string]string
		code               int
		want               core.Principal
	}{
		{"key", "POST", control, map[string]string{"X-API-KEY": "k"}, 200, alice},
		{"bearer", "POST", control, map[string]string{"Authorization": "Bearer k"}, 200, alice},
		{"any good credential is enough", "POST", control, map[string]string{"X-API-KEY": "stale", "Authorization": "BEARER k"}, 200, alice},
		{"key in the query of a GET", "GET", commands + "?api_key=k", nil, 200, alice},
		{"key in the query of a POST", "POST", commands + "?api_key=k", nil, 401, core.Principal{}},
		{"key in the query of another family", "GET", control + "?api_key=k", nil, 401, core.Principal{}},
		{"key in the query of codex", "GET", codex + "?api_key=k", nil, 401, core.Principal{}},
		{"public", "GET", "/livez", map[string]string{"X-API-KEY": "k"}, 200, core.Principal{}},
		{"public, with a path below", "GET", "/livez/x?api_key=k", nil, 200, core.Principal{}},
		{"a key for e2a", "GET", "/v1/sessions", map[string]string{"Authorization": "Bearer k"}, 200, alice},
		{"a key for e2a in E2B's header", "GET", "/v1/sessions", map[string]string{"X-API-KEY": "k"}, 401, core.Principal{}},
		{"a user's token for an API key's route", "GET", "/v1/sessions", map[string]string{"Authorization": "Bearer user"}, 401, core.Principal{}},
		{"a user's token", "POST", "/v1/api-keys", map[string]string{"Authorization": "Bearer user"}, 200, carol},
		{"a key for a user's route", "POST", "/v1/api-keys", map[string]string{"Authorization": "Bearer k"}, 401, core.Principal{}},
		{"a user's token reads", "GET", "/v1/tenants/me", map[string]string{"Authorization": "Bearer user"}, 200, carol},
		{"a user's token does not write", "POST", "/v1/tenants/me/api-keys", map[string]string{"Authorization": "Bearer user"}, 401, core.Principal{}},
		{"a key writes", "POST", "/v1/tenants/me/api-keys", map[string]string{"Authorization": "Bearer k"}, 200, alice},
		{"a user's token for E2B", "GET", control, map[string]string{"Authorization": "Bearer user"}, 401, core.Principal{}},
		{"a key for codex", "GET", codex, map[string]string{"Authorization": "Bearer k"}, 200, alice},
		{"a token for codex", "GET", codex, map[string]string{"Authorization": "Bearer right"}, 200, token},
		{"a token for codex in the query", "GET", codex + "?token=right", nil, 200, token},
		{"a wrong token for codex", "GET", codex + "?token=wrong", nil, 401, core.Principal{}},
		{"nothing for codex", "GET", codex, nil, 401, core.Principal{}},
		{"a token for another sandbox of codex", "GET", "/codex/i2?token=right", nil, 401, core.Principal{}},
		{"a token for a new sandbox of codex", "GET", "/codex/new?token=right", nil, 401, core.Principal{}},
		{"a token names the sandbox of codex", "GET", "/codex?token=right", nil, 200, token},
		{"a token in the query of another family", "GET", "/execute?sandbox=i1&token=right", nil, 401, core.Principal{}},
		{"a signed link", "PUT", "/templates/uploads/alice/0a?signature=s", nil, 200, core.Principal{}},
		{"a signed link for reading", "GET", "/templates/uploads/alice/0a?signature=s", nil, 401, core.Principal{}},
		{"a link without a signature", "PUT", "/templates/uploads/alice/0a", nil, 401, core.Principal{}},
		{"a volume's token", "GET", "/volumecontent/v00000000000000000000/path", map[string]string{"Authorization": "Bearer right"}, 200, core.Principal{Tenant: "alice", Volume: "v00000000000000000000"}},
		{"a volume's wrong token", "GET", "/volumecontent/v00000000000000000000/path", map[string]string{"Authorization": "Bearer wrong"}, 401, core.Principal{}},
		{"a key for a volume", "GET", "/volumecontent/v00000000000000000000/path", map[string]string{"X-API-KEY": "k"}, 200, alice},
		{"empty key", "GET", control, map[string]string{"X-API-KEY": ""}, 401, core.Principal{}},
		{"token on the data plane", "POST", commands, map[string]string{"E2b-Sandbox-Id": "i1", "X-Access-Token": "right"}, 200, token},
		{"token on the control plane", "POST", control, map[string]string{"E2b-Sandbox-Id": "i1", "X-Access-Token": "right"}, 401, core.Principal{}},
		{"token without a sandbox", "POST", commands, map[string]string{"X-Access-Token": "right"}, 401, core.Principal{}},
		{"wrong token", "POST", commands, map[string]string{"E2b-Sandbox-Id": "i1", "X-Access-Token": "wrong"}, 401, core.Principal{}},
		{"right token of an unknown sandbox", "POST", commands, map[string]string{"E2b-Sandbox-Id": "igone", "X-Access-Token": "right"}, 200, core.Principal{}},
		{"no token for an unknown sandbox", "POST", commands, map[string]string{"E2b-Sandbox-Id": "igone"}, 200, core.Principal{}},
		{"an invalid sandbox id", "POST", commands, map[string]string{"E2b-Sandbox-Id": "I.*"}, 200, core.Principal{}},
		{"unknown sandbox on the control plane", "POST", control, map[string]string{"E2b-Sandbox-Id": "igone"}, 401, core.Principal{}},
		{"contexts require no token", "GET", "/contexts", map[string]string{"E2b-Sandbox-Id": "i1"}, 200, token},
		{"contexts of a private sandbox require a traffic token", "GET", "/contexts", map[string]string{"E2b-Sandbox-Id": "iprivate"}, 403, core.Principal{}},
		{"contexts with a traffic token", "GET", "/contexts", map[string]string{"E2b-Sandbox-Id": "iprivate", "E2b-Traffic-Access-Token": "traffic"}, 200, core.Principal{Tenant: "alice", Sandbox: "iprivate"}},
		{"contexts reject a wrong token", "GET", "/contexts", map[string]string{"E2b-Sandbox-Id": "i1", "X-Access-Token": "wrong"}, 401, core.Principal{}},
		{"executions require a token", "POST", "/execute", map[string]string{"E2b-Sandbox-Id": "i1"}, 401, core.Principal{}},
		{"the log is unreachable", "POST", commands, map[string]string{"E2b-Sandbox-Id": "ifar", "X-Access-Token": "right"}, 503, core.Principal{}},
		{"a path that only begins like the data plane", "POST", "/commandsx", map[string]string{"E2b-Sandbox-Id": "i1", "X-Access-Token": "right"}, 401, core.Principal{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := fiber.New(fiber.Config{ErrorHandler: route.WriteError})
			app.Use(auth.New(keys{sha256.Sum256([]byte("k")): {Tenant: "alice"}}, users{}, tokens{}, shares{}))
			var got core.Principal
			app.All("/*", func(c *fiber.Ctx) error {
				got = auth.From(c)
				return nil
			})
			req := httptest.NewRequest(tt.method, tt.path, nil)
			for k, v := range tt.headers {
				req.Header.Set(k, v)
			}
			resp, err := app.Test(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.code || got != tt.want {
				t.Errorf("%d %+v, want %d %+v", resp.StatusCode, got, tt.code, tt.want)
			}
		})
	}
}

func TestFromWithoutTheMiddleware(t *testing.T) {
	app := fiber.New()
	app.Get("/", func(c *fiber.Ctx) error {
		if p := auth.From(c); p != (core.Principal{}) {
			t.Errorf("From = %+v", p)
		}
		auth.Set(c, core.Principal{Tenant: "x"})
		if p := auth.From(c); p.Tenant != "x" {
			t.Errorf("From = %+v", p)
		}
		return nil
	})
	if _, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
		t.Fatal(err)
	}
}

// A 401 has the form and the text that the clients of its family expect.
func TestUnauthorizedHasTheFormOfTheFamily(t *testing.T) {
	for path, want := range map[string]string{
		"/sandboxes": `{"code":401,"message":"unauthorized: a valid API key is required (X-API-KEY or Authorization: Bearer)"}`,
		"/execute":   `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}`,
		"/files":     `{"code":401,"message":"missing signature query parameter"}`,
		"/volumecontent/v00000000000000000000/path": `{"code":"unauthenticated","message":"unauthorized: a valid volume token is required (Authorization: Bearer)"}`,
		"/v1/sessions": `{"error":"unauthenticated","message":"unauthorized: a valid API key is required (X-API-KEY or Authorization: Bearer)"}`,
		"/v1/api-keys": `{"error":"unauthenticated","message":"unauthorized: a valid token of a user is required (Authorization: Bearer)"}`,
		"/codex/i1":    "unauthorized: a valid API key or token of the sandbox is required (Authorization: Bearer, or the token in ?token=)\n",
	} {
		app := fiber.New(fiber.Config{ErrorHandler: route.WriteError})
		app.Use(auth.New(keys{}, users{}, tokens{}, shares{}))
		resp, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 401 || string(body) != want {
			t.Errorf("%s: %d %s, %v\nwant %s", path, resp.StatusCode, body, err, want)
		}
	}
}

const sharedID, otherID = "01jd0000000000000000000000-i1", "01jd0000000000000000000001-i1"

// shares accept the tokens "sandbox" and "process".
type shares struct{}

func (shares) Onlooker(_ context.Context, token string) (core.Principal, context.Context, error) {
	p := core.Principal{Tenant: "alice", Sandbox: "i1", Onlooker: true}
	switch token {
	case "process":
		p.Process = sharedID
	case "sandbox":
	default:
		return core.Principal{}, nil, kind.New(kind.Unauthenticated, "", "", "ended")
	}
	return p, context.Background(), nil
}

// The token of a link permits reading what the link is for, on the routes for onlookers only.
func TestShares(t *testing.T) {
	tests := []struct {
		name, method, path, token, key string
		code                           int
		tenant                         string
	}{
		{"the process", "GET", "/v1/processes/" + sharedID, "process", "", 200, "alice"},
		{"its events", "HEAD", "/v1/processes/" + sharedID + "/events", "process", "", 200, "alice"},
		{"its screen", "GET", "/v1/processes/" + sharedID + "/screen/live", "process", "", 200, "alice"},
		{"another process", "GET", "/v1/processes/" + otherID + "/screen", "process", "", 404, ""},
		{"another process of the sandbox", "GET", "/v1/processes/" + otherID + "/screen", "sandbox", "", 200, "alice"},
		{"a process of another sandbox", "GET", "/v1/processes/01jd0000000000000000000000-i2", "sandbox", "", 404, ""},
		{"an invalid process", "GET", "/v1/processes/x", "sandbox", "", 404, ""},
		{"the sandbox", "GET", "/v1/timeline/i1", "sandbox", "", 200, "alice"},
		{"another sandbox", "GET", "/v1/timeline/i2", "sandbox", "", 404, ""},
		{"the sandbox of the process", "GET", "/v1/timeline/i1", "process", "", 404, ""},
		{"itself", "GET", "/v1/shares/self", "process", "", 200, "alice"},
		{"a wrong token", "GET", "/v1/shares/self", "x", "", 401, ""},
		{"a wrong token beside a key", "GET", "/v1/shares/self", "x", "k", 401, ""},
		{"input", "POST", "/v1/processes/" + sharedID + "/input", "process", "", 401, ""},
		{"another method", "POST", "/v1/processes/" + sharedID, "process", "", 401, ""},
		{"the list", "GET", "/v1/processes", "process", "", 401, ""},
		{"another route", "GET", "/sandboxes/i1", "sandbox", "", 401, ""},
		{"another route with a key", "GET", "/sandboxes/i1", "sandbox", "k", 200, "bob"},
		{"in the query", "GET", "/v1/shares/self?share=sandbox&api_key=sandbox&token=sandbox", "", "", 401, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := fiber.New(fiber.Config{ErrorHandler: route.WriteError})
			app.Use(auth.New(keys{sha256.Sum256([]byte("k")): {Tenant: "bob"}}, users{}, tokens{}, shares{}))
			var got core.Principal
			app.All("/*", func(c *fiber.Ctx) error {
				got = auth.From(c)
				return nil
			})
			req := httptest.NewRequest(tt.method, tt.path, nil)
			req.Header.Set(auth.HeaderShare, tt.token)
			req.Header.Set("X-Api-Key", tt.key)
			resp, err := app.Test(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.code || got.Tenant != tt.tenant {
				t.Errorf("%d %+v, want %d %s", resp.StatusCode, got, tt.code, tt.tenant)
			}
		})
	}
}
