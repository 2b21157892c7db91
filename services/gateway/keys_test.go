package gateway_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

type shownKey struct{ ID, Name, Key string }

// Keys are created and revoked, shown once, and one always remains.
func TestKeysOfATenant(t *testing.T) {
	f := newFixture(t)
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
	f.do("DELETE", "/api-keys/nope", "").wantError(t, "an unknown key", 404)
	f.do("DELETE", "/api-keys/"+first[0].ID, "").wantError(t, "the key in use", 409)
	f.do("DELETE", "/api-keys/"+first[0].ID, "", "X-Api-Key", made.Key).want(t, "revoke", 204, "")
	f.do("GET", "/v2/sandboxes", "").wantError(t, "with a revoked key", 401)
	f.do("DELETE", "/api-keys/"+made.ID, "", "X-Api-Key", made.Key).wantError(t, "the last key", 409)
	f.do("DELETE", "/api-keys/"+first[0].ID, "", "X-Api-Key", made.Key).wantError(t, "again", 404)
}

// The secret key of a pair is shown once, opened on every gateway, and not a bearer key.
func TestKeyPairs(t *testing.T) {
	f := newFixture(t)
	var made struct{ ID, Key, AccessKey, SecretKey string }
	f.do("POST", "/api-keys", `{"name":"sdk","pair":true}`).want(t, "create", 201, "").decode(t, &made)
	if len(made.AccessKey) != 20 || !strings.HasPrefix(made.AccessKey, "AKIA") || len(made.SecretKey) != 40 || made.Key != "" {
		t.Fatalf("%+v", made)
	}
	listed := f.do("GET", "/api-keys", "").want(t, "list", 200, "")
	if got := listed.body; !strings.Contains(got, made.AccessKey) || strings.Contains(got, made.SecretKey) || strings.Contains(got, "secretKey") {
		t.Errorf("list: %s", got)
	}
	for name, k := range map[string]string{"access key": made.AccessKey, "secret key": made.SecretKey} {
		f.do("GET", "/v2/sandboxes", "", "X-Api-Key", k).wantError(t, name, 401)
	}
	f.do("GET", "/commands?api_key=key+pair%00"+made.AccessKey, "", "X-Api-Key", "").wantError(t, "the text that is hashed", 401)

	view := eventstest.View(t, f.log)
	pairs := accounts.New(core.New(core.Config{Log: f.log, View: view, Sealer: eventstest.Ring(t, f.log)}))
	if tenant, secret, ok := pairs.KeyPair(made.AccessKey); tenant != gateway.DefaultTenant || secret != made.SecretKey || !ok {
		t.Errorf("on another gateway: %q, %v, %v", tenant, secret == made.SecretKey, ok)
	}
	for _, access := range []string{"", "AKIA", made.AccessKey + "A", made.ID} {
		if _, _, ok := pairs.KeyPair(access); ok {
			t.Errorf("a pair has the access key %q", access)
		}
	}
	f.do("DELETE", "/api-keys/"+made.ID, "", "X-Api-Key", bobKey).wantError(t, "another tenant's", 404)
	f.do("DELETE", "/api-keys/"+made.ID, "").want(t, "revoke", 204, "")
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := pairs.KeyPair(made.AccessKey); ok {
		t.Error("a revoked pair is valid on another gateway")
	}
}

// Concurrent creations and revocations do not make each other fail.
func TestConcurrentKeyChanges(t *testing.T) {
	f := newFixture(t)
	create := func() (made shownKey) {
		f.do("POST", "/api-keys", `{"name":"storm"}`).want(t, "create", 201, "").decode(t, &made)
		return made
	}
	old := make([]shownKey, 30)
	for i := range old {
		old[i] = create()
	}
	stop := make(chan struct{})
	var clients, revokers sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				f.do("DELETE", "/api-keys/"+create().ID, "").want(t, "revoke its own", 204, "")
			}
		})
	}
	for i := range old {
		revokers.Go(func() { f.do("DELETE", "/api-keys/"+old[i].ID, "").want(t, "revoke", 204, "") })
	}
	revokers.Wait()
	close(stop)
	clients.Wait()
	var all []shownKey
	f.do("GET", "/api-keys", "").want(t, "list", 200, "").decode(t, &all)
	if len(all) != 1 {
		t.Errorf("%d keys are left, want 1", len(all))
	}
}

// Of two keys that revoke each other at the same moment, one remains.
func TestMutualRevocationLeavesOneKey(t *testing.T) {
	f := newFixture(t)
	for range 20 {
		var keys [2]shownKey
		for i := range keys {
			f.do("POST", "/api-keys", `{"name":"rival"}`).want(t, "create", 201, "").decode(t, &keys[i])
		}
		var codes [2]int
		var both sync.WaitGroup
		for i := range keys {
			both.Go(func() { codes[i] = f.do("DELETE", "/api-keys/"+keys[1-i].ID, "", "X-Api-Key", keys[i].Key).code })
		}
		both.Wait()
		if codes != [2]int{204, 401} && codes != [2]int{401, 204} {
			t.Fatalf("answers %v, want 204 and 401", codes)
		}
	}
}
