package gateway_test

import (
	"strings"
	"testing"
)

// keyringBody is the response to GET /v1/keyring.
type keyringBody struct {
	Master   string `json:"master_key"`
	DataKeys []struct {
		Number uint32 `json:"number"`
		State  string `json:"state"`
	} `json:"data_keys"`
	Sealed  bool `json:"sealed"`
	Changes []struct {
		Type string `json:"type"`
		Data uint32 `json:"data_key"`
		By   string `json:"by"`
	} `json:"changes"`
}

// Operators see the numbers and ids of keys and rotate them; a repeated request changes nothing.
func TestKeyring(t *testing.T) {
	f := newFixture(t)
	get := func(method, path, body string) (k keyringBody) {
		t.Helper()
		f.do(method, path, body).want(t, method+" "+path, 200, "").decode(t, &k)
		return k
	}
	first := get("GET", "/v1/keyring", "")
	if len(first.Master) != 16 || len(first.DataKeys) != 1 || first.DataKeys[0].Number != 1 || first.DataKeys[0].State != "current" || !first.Sealed || len(first.Changes) != 1 {
		t.Errorf("%+v", first)
	}
	f.do("POST", "/secrets", `{"name":"before","value":"canary"}`)
	for range 2 {
		k := get("POST", "/v1/keyring/data", `{"replaces":1}`)
		if len(k.DataKeys) != 2 || k.DataKeys[0].State != "replaced" || k.DataKeys[1].Number != 2 || k.Sealed || len(k.Changes) != 2 {
			t.Errorf("%+v", k)
		}
		if x := k.Changes[1]; x.Type != "data_key_made" || x.Data != 2 || !strings.HasPrefix(x.By, "key ") || strings.Contains(x.By, key) {
			t.Errorf("%+v", x)
		}
	}
	if k := get("POST", "/v1/keyring/master", ""); k.Master != first.Master || len(k.Changes) != 2 {
		t.Errorf("the same master key: %+v", k)
	}
	for _, body := range []string{"", "{}", `{"replaces":9}`, `{"replaces":-1}`, "[]", "nonsense", `{"replaces":"1"}`} {
		f.do("POST", "/v1/keyring/data", body).wantError(t, "replace with "+body, 400)
	}
	for method, path := range map[string]string{"GET": "/v1/keyring", "POST": "/v1/keyring/data"} {
		f.do(method, path, "", "X-Api-Key", bobKey).wantError(t, "a tenant's "+path, 403)
		f.do(method, path, "", "X-Api-Key", "").wantError(t, path+" without a key", 401)
	}
	f.do("POST", "/v1/keyring/master", "", "X-Api-Key", bobKey).wantError(t, "a tenant's rotation", 403)
}
