package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway"
)

const secretsPath = "/v1/tenants/me/secrets"

// bundleBody returns the body of a creation.
func bundleBody(t *testing.T, name string, values map[string]string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"name": name, "values": values})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// E-263, E-310, E-318 to E-320, E-325, E-327, E-330: from a creation to a deletion, at two gateways.
func TestSecretBundles(t *testing.T) {
	u := newUserFixture(t)
	other := u.another(gateway.UsersConfig{PerMinute: 1000})
	you, her := u.signUp("you@example.com"), u.signUp("her@example.com")
	const one = secretsPath + "/my-llm-keys"
	never := func(a answer) answer {
		t.Helper()
		if strings.Contains(a.body, "sk-ant") {
			t.Errorf("the answer has a value: %s", a.body)
		}
		return a
	}
	made := never(u.as(you.APIKey, "POST", secretsPath, `{"name":"my-llm-keys","values":{"LLM_API_KEY":"sk-ant-1","B":"sk-ant-2"}}`)).object(t, "create", 201, "name", "key_names", "created_at")
	if made["name"] != "my-llm-keys" || fmt.Sprint(made["key_names"]) != "[B LLM_API_KEY]" || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(made["created_at"].(string)) {
		t.Errorf("created: %v", made)
	}
	members := []string{"name", "key_names", "created_at", "last_rotated_at"}
	for name, credential := range map[string]string{"a key": you.APIKey, "a token": you.Token} {
		got := never(other.as(credential, "GET", one, "")).object(t, name, 200, members...)
		list := never(other.as(credential, "GET", secretsPath, "")).object(t, name, 200, "bundles")["bundles"].([]any)
		if len(list) != 1 || !maps.EqualFunc(list[0].(map[string]any), got, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) || got["created_at"] != made["created_at"] || got["last_rotated_at"] != made["created_at"] {
			t.Errorf("%s: list %v, got %v", name, list, got)
		}
	}
	u.as(you.APIKey, "POST", secretsPath, `{"name":"my-llm-keys","values":{"A":"sk-ant-3"}}`).failed(t, "create again", 409, "secret_bundle_exists")
	put := never(other.as(you.APIKey, "PUT", one, `{"values":{"ADDED":"sk-ant-4"}}`)).object(t, "replace", 200, "name", "key_names", "last_rotated_at")
	if fmt.Sprint(put["key_names"]) != "[ADDED]" {
		t.Errorf("replaced: %v", put)
	}
	if got := u.as(you.APIKey, "GET", one, "").object(t, "get", 200, members...); fmt.Sprint(got["key_names"]) != "[ADDED]" || got["created_at"] != made["created_at"] || got["last_rotated_at"] != put["last_rotated_at"] {
		t.Errorf("after a replacement: %v", got)
	}
	for _, r := range []struct{ method, path, body string }{
		{"POST", secretsPath, `{"name":"x","values":{"A":"b"}}`}, {"PUT", one, `{"values":{"A":"b"}}`}, {"DELETE", one, ""},
	} {
		u.as(you.Token, r.method, r.path, r.body).failed(t, r.method+" with a token", 401, "unauthenticated")
		u.as("", r.method, r.path, r.body).failed(t, r.method+" without a credential", 401, "unauthenticated")
	}
	for _, path := range []string{one, secretsPath + "/none", secretsPath + "/No%20Name"} {
		u.as(her.APIKey, "GET", path, "").failed(t, path, 404, "not_found")
		u.as(her.APIKey, "PUT", path, `{"values":{"A":"b"}}`).failed(t, path, 404, "not_found")
		u.as(her.APIKey, "DELETE", path, "").failed(t, path, 404, "not_found")
	}
	if list := u.as(her.APIKey, "GET", secretsPath, "").want(t, "another tenant's", 200, ""); list.body != `{"bundles":[]}` {
		t.Errorf("another tenant's list: %s", list.body)
	}
	u.as(you.APIKey, "DELETE", one, "").want(t, "delete", 200, `{"status":"deleted"}`)
	other.as(you.APIKey, "DELETE", one, "").failed(t, "delete again", 404, "not_found")
	u.as(you.APIKey, "POST", secretsPath, `{"name":"my-llm-keys","values":{"A":"b"}}`).want(t, "create after a deletion", 201, "")
}

// E-311 to E-314, E-316, E-322, E-331: what is rejected changes nothing and is not shown.
func TestSecretBundleLimits(t *testing.T) {
	u := newUserFixture(t)
	key := u.signUp("you@example.com").APIKey
	full := make(map[string]string)
	for i := range 50 {
		full[fmt.Sprint("K", i)] = strings.Repeat("x", 65536)
	}
	u.as(key, "POST", secretsPath, bundleBody(t, strings.Repeat("n", 63), full)).want(t, "a full bundle", 201, "")
	bad := map[string]map[string]string{
		"65537 bytes": {"A": "hunter2" + strings.Repeat("x", 65530)}, "51 keys": maps.Clone(full), "no keys": {}, "129 characters": {strings.Repeat("k", 129): "hunter2"}, "a digit": {"1A": "hunter2"},
		"an equals sign": {"A=hunter2": "x"}, "a hyphen": {"A-B": "hunter2"}, "no name": {"": "hunter2"},
	}
	bad["51 keys"]["K51"] = "hunter2"
	for _, name := range []string{"AGENT_TYPE", "LLM_KEY", "LLM_MODEL", "TASK", "SESSION_ID", "AGENT_CMD", "AGENT_SESSION_MODE", "E2A_PERSISTENCE_URL", "E2A_PERSISTENCE_AUTH_HEADER"} {
		bad[name] = map[string]string{name: "hunter2", "B": "b"}
	}
	const one = secretsPath + "/one"
	u.as(key, "POST", secretsPath, `{"name":"one","values":{"LLM_API_KEY":"x","WORKSPACE_MODE":"y"}}`).want(t, "create", 201, "")
	was := u.as(key, "GET", one, "").body
	rejected := func(what string, a answer) {
		t.Helper()
		a.failed(t, what, 400, "invalid")
		if strings.Contains(a.body, "hunter2") {
			t.Errorf("%s: the error has a value: %s", what, a.body)
		}
	}
	for what, values := range bad {
		rejected(what, u.as(key, "POST", secretsPath, bundleBody(t, "new", values)))
		raw, _ := json.Marshal(map[string]any{"values": values})
		rejected(what, u.as(key, "PUT", one, string(raw)))
	}
	for _, name := range []string{strings.Repeat("n", 64), "A", "-a", "a_b", "", "ä", "a/b"} {
		rejected(name, u.as(key, "POST", secretsPath, bundleBody(t, name, map[string]string{"A": "hunter2"})))
	}
	for _, raw := range []string{
		`{"name":"new"}`, `{"values":{"A":"hunter2"}}`, `{"name":7,"values":{"A":"hunter2"}}`, `{"name":"new","values":{"A":7}}`, `{"name":"new","values":["hunter2"]}`, `{"name":"new","values":"hunter2"}`,
		`{"name":"new","values":{"A":"hunter2","A":"b"}}`, `{"name":"new","values":{"A":"hunter2"}`, `{"name":"new","values":{"A":hunter2}}`, `{"name":"new","values":{"A":"hunter2\u0000"}}`, `{"name":"new","Values":{"A":"hunter2"}}`,
		"{\"name\":\"new\",\"values\":{\"A\":\"hunter2\xff\"}}", `hunter2`, ``,
	} {
		rejected(raw, u.as(key, "POST", secretsPath, raw))
	}
	if got := u.as(key, "GET", one, "").body; got != was {
		t.Errorf("a rejected replacement changed %s to %s", was, got)
	}
	u.as(key, "GET", secretsPath+"/new", "").failed(t, "a rejected creation", 404, "not_found")
	for i := range 48 {
		u.as(key, "POST", secretsPath, fmt.Sprintf(`{"name":"b%d","values":{"A":"b"}}`, i)).want(t, "create", 201, "")
	}
	a := u.as(key, "POST", secretsPath, `{"name":"b48","values":{"A":"b"}}`)
	a.failed(t, "the 51st bundle", 429, "quota_exceeded")
	if a.header.Get("Retry-After") != "" {
		t.Error("Retry-After for a limit that no time lifts")
	}
	var list struct{ Bundles []struct{ Name string } }
	u.as(key, "GET", secretsPath, "").decode(t, &list)
	if len(list.Bundles) != 50 || !slices.IsSortedFunc(list.Bundles, func(a, b struct{ Name string }) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d bundles: %v", len(list.Bundles), list)
	}
}
