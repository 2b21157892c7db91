package gateway_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/services/gateway"
)

// trail returns the entries of the audit trail, which must be intact.
func (f *fixture) trail(t *testing.T) (all []audit.Entry, v audit.Verifier) {
	t.Helper()
	for from := uint64(0); ; {
		var page struct {
			Links []audit.Link
			Next  uint64
		}
		f.do("GET", "/v1/audit?from="+strconv.FormatUint(from, 10), "").want(t, "read the trail", 200, "").decode(t, &page)
		for i := range page.Links {
			e, err := v.Add(&page.Links[i])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		if len(page.Links) == 0 {
			return all, v
		}
		from = page.Next
	}
}

// Every denial is in the audit trail when its client has the response: with the client, its
// source, and the owner of what the request is for.
func TestDenialsAreAudited(t *testing.T) {
	u := newUserFixture(t)
	you, bob := u.signUp("you@example.com"), u.signUp("bob@example.com")
	limited := u.another(gateway.UsersConfig{PerMinute: 1})
	seen := 0
	next := func(what string) audit.Entry {
		t.Helper()
		all, _ := u.trail(t)
		if len(all) != seen+1 {
			t.Fatalf("%s: %d new entries", what, len(all)-seen)
		}
		seen++
		return all[seen-1]
	}
	for _, tt := range []struct {
		name, credential, method, path, body string
		gateway                              *fixture
		want                                 audit.Entry
	}{
		{"no credential", "", "GET", "/v1/tenants/me", "", u.fixture, audit.Entry{Event: "unauthenticated", Status: 401}},
		{"a wrong key", "e2a_" + strings.Repeat("0", 64), "GET", "/v1/tenants/me", "", u.fixture, audit.Entry{Event: "unauthenticated", Status: 401}},
		{"a key for a token's route", you.APIKey, "POST", "/v1/api-keys", "", u.fixture, audit.Entry{Event: "unauthenticated", Status: 401}},
		{"an unknown key", you.APIKey, "DELETE", "/v1/tenants/me/api-keys/key_0", "", u.fixture, audit.Entry{Event: "not_found", Status: 404, Tenant: you.TenantID}},
		{"another tenant's key", you.APIKey, "DELETE", "/v1/tenants/me/api-keys/" + bob.KeyID, "", u.fixture, audit.Entry{Event: "cross_tenant_denied", Status: 404, Tenant: you.TenantID, Owner: bob.TenantID}},
		{"an unknown template", you.APIKey, "GET", "/v1/templates/codex", "", u.fixture, audit.Entry{Event: "template_not_found", Status: 404, Tenant: you.TenantID}},
		{"a wrong code", "", "POST", "/v1/auth/verify-otp", entered("you@example.com", "0"), u.fixture, audit.Entry{Event: "invalid_code", Status: 401}},
		{"too many requests", "", "POST", "/v1/auth/login", email("you@example.com"), limited, audit.Entry{Event: "throttled", Status: 429}},
	} {
		a := tt.gateway.as(tt.credential, tt.method, tt.path, tt.body)
		if a.code != tt.want.Status {
			t.Fatalf("%s: %d %s", tt.name, a.code, a.body)
		}
		got := next(tt.name)
		if got.Event != tt.want.Event || got.Status != tt.want.Status || got.Tenant != tt.want.Tenant || got.Owner != tt.want.Owner ||
			got.Method != tt.method || got.Path != tt.path || got.Source != "127.0.0.1" || got.Count != 1 || got.Time.IsZero() || got.Request != a.header.Get("X-Request-Id") {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	for name, a := range map[string]answer{
		"success":         u.as(you.APIKey, "GET", "/v1/tenants/me", ""),
		"a bad request":   u.as("", "POST", "/v1/tenants", "{}"),
		"an unknown path": u.as(you.APIKey, "GET", "/v1/tenants/me/nothing", ""),
		"another family":  u.do("GET", "/v2/sandboxes", "", "X-Api-Key", "x"),
	} {
		if all, _ := u.trail(t); len(all) != seen {
			t.Errorf("%s (%d) is a denial", name, a.code)
		}
	}
	u.do("GET", "/v1/audit", "", "X-Api-Key", you.APIKey).wantError(t, "the trail for a tenant", 403)
	u.do("GET", "/v1/audit?from=x", "").wantError(t, "a wrong position", 400)
	if _, v := u.trail(t); len(v.Chains) != 2 {
		t.Errorf("%d chains of two gateways", len(v.Chains))
	}
}

// The path of a link is a credential, which may be valid for another method. TORTURE F 119.
func TestTheAuditTrailHasNoLinks(t *testing.T) {
	u := newUserFixture(t)
	you := u.signUp("you@example.com")
	link := u.as(you.Token, "PUT", "/v1/workspaces/app/default/files/f", "").link(t, "link")
	at := strings.LastIndexByte(link, '/') + 1
	path, token := strings.TrimPrefix(link[:at], "http://"+u.addr), link[at:]
	for _, p := range []string{path + token, path + token + "/", path + "%" + strconv.FormatUint(uint64(token[0]), 16) + token[1:], path + "x"} {
		u.do("GET", p, "", "X-Api-Key", "").want(t, p, 403, "")
	}
	all, _ := u.trail(t)
	n := 0
	for _, e := range all {
		if n += e.Count; e.Path != path+"{token}" {
			t.Errorf("audited: %+v", e)
		}
	}
	if n != 4 {
		t.Errorf("%d denials", n)
	}
}
