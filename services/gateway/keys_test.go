package gateway_test

import (
	"strings"
	"testing"
)

type shownKey struct{ ID, Name, Key string }

// Keys come and go, are told once, and one is always left.
func TestKeysOfATenant(t *testing.T) {
	f := newFront(t)
	list := func(as string) (all []shownKey) {
		t.Helper()
		f.do("GET", "/api-keys", "", "X-Api-Key", as).want(t, "list", 200, "").decode(t, &all)
		return all
	}
	first := list(key)
	if len(first) != 1 || first[0].Key != "" {
		t.Fatalf("%+v", first)
	}
	var made shownKey
	f.do("POST", "/api-keys", `{"name":"ci"}`).want(t, "create", 201, "").decode(t, &made)
	if !strings.HasPrefix(made.Key, "e2b_") || len(made.Key) != 44 || made.Name != "ci" {
		t.Fatalf("%+v", made)
	}
	if all := list(made.Key); len(all) != 2 || all[1].ID != made.ID || all[1].Name != "ci" || all[1].Key != "" {
		t.Errorf("%+v", all)
	}
	if all := list(bobKey); len(all) != 1 {
		t.Errorf("another tenant's: %+v", all)
	}
	f.do("DELETE", "/api-keys/"+made.ID, "", "X-Api-Key", bobKey).wantError(t, "another tenant's", 404)
	f.do("DELETE", "/api-keys/nope", "").wantError(t, "none", 404)
	f.do("DELETE", "/api-keys/"+first[0].ID, "").wantError(t, "the one in use", 409)
	f.do("DELETE", "/api-keys/"+first[0].ID, "", "X-Api-Key", made.Key).want(t, "revoke", 204, "")
	f.do("GET", "/v2/sandboxes", "").wantError(t, "with a revoked key", 401)
	f.do("DELETE", "/api-keys/"+made.ID, "", "X-Api-Key", made.Key).wantError(t, "the last one", 409)
	f.do("DELETE", "/api-keys/"+first[0].ID, "", "X-Api-Key", made.Key).wantError(t, "again", 404)
}
