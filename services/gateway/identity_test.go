package gateway_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway"
)

type keySet struct {
	Keys []map[string]string `json:"keys"`
}

func TestIssuerAndKeys(t *testing.T) {
	f := newFixture(t)
	noKey := []string{"X-Api-Key", ""}
	var conf struct {
		Issuer string   `json:"issuer"`
		Keys   string   `json:"jwks_uri"`
		Algs   []string `json:"id_token_signing_alg_values_supported"`
	}
	f.do("GET", "/.well-known/openid-configuration", "", noKey...).want(t, "configuration", 200, "").decode(t, &conf)
	if conf.Issuer != "http://"+f.addr || conf.Keys != conf.Issuer+"/.well-known/jwks.json" || len(conf.Algs) != 1 || conf.Algs[0] != "RS256" {
		t.Errorf("%+v", conf)
	}
	read := func() (s keySet) {
		t.Helper()
		f.do("GET", "/.well-known/jwks.json", "", noKey...).want(t, "keys", 200, "").decode(t, &s)
		return s
	}
	one := read()
	if k := one.Keys; len(k) != 1 || k[0]["kty"] != "RSA" || k[0]["alg"] != "RS256" || k[0]["kid"] == "" || k[0]["d"] != "" {
		t.Fatalf("%+v", one)
	}

	m := f.create(`{"templateID":"base","iam":{"tokens":{"b":{"audience":"sts.amazonaws.com","tokenType":"JWT-SVID"},"a c":{"audience":" as it is ","tokenType":"JWT-SVID"}}},
		"network":{"rules":{"a.test":[{"transform":{"headers":{"Authorization":"Bearer ${e2b.identity.tokens.b}"}}}]}}}`)
	st, _ := f.view.Sandbox(sandbox.ID(m.ID))
	want := []sandbox.Token{{Name: "a c", Audience: " as it is ", Type: "JWT-SVID"}, {Name: "b", Audience: "sts.amazonaws.com", Type: "JWT-SVID"}}
	if i := st.Request.Identity; i.Issuer != conf.Issuer || len(i.Tokens) != 2 || i.Tokens[0] != want[0] || i.Tokens[1] != want[1] {
		t.Errorf("%+v", i)
	}
	shown := f.do("GET", "/sandboxes/"+m.ID, "").want(t, "detail", 200, "")
	if !strings.Contains(shown.body, `Bearer ${e2b.identity.tokens.b}`) || strings.Contains(shown.body, "eyJ") {
		t.Errorf("detail: %s", shown.body)
	}
	var forks []struct{ Sandbox struct{ SandboxID string } }
	f.do("POST", "/sandboxes/"+m.ID+"/fork", "").want(t, "fork", 201, "").decode(t, &forks)
	if st, _ := f.view.Sandbox(sandbox.ID(forks[0].Sandbox.SandboxID)); len(st.Request.Identity.Tokens) != 2 {
		t.Errorf("fork: %+v", st.Request.Identity)
	}
	for _, none := range []string{`null`, `{}`, `{"tokens":{}}`, `{"tokens":null}`} {
		f.create(`{"templateID":"base","iam":` + none + `}`)
	}
	for name, iam := range map[string]string{
		"no object": `[]`, "no tokens": `{"tokens":[]}`, "an invalid token": `{"tokens":{"a":"x"}}`, "an audience of another type": `{"tokens":{"a":{"audience":1,"tokenType":"JWT-SVID"}}}`,
		"no audience": `{"tokens":{"a":{"tokenType":"JWT-SVID"}}}`, "no type": `{"tokens":{"a":{"audience":"x"}}}`, "another type": `{"tokens":{"a":{"audience":"x","tokenType":"JWT"}}}`,
		"no name": `{"tokens":{"":{"audience":"x","tokenType":"JWT-SVID"}}}`, "null": `{"tokens":{"a":null}}`,
	} {
		for _, at := range []string{"/sandboxes", "/v2/sandboxes"} {
			f.do("POST", at, `{"templateID":"base","iam":`+iam+`}`).wantError(t, name, 400)
		}
	}

	// A new key is published beside the one that signs.
	f.do("POST", "/v1/identity/keys", "", "X-Api-Key", bobKey).wantError(t, "a tenant's rotation", 403)
	f.do("POST", "/v1/identity/keys", "", noKey...).wantError(t, "rotation without a key", 401)
	f.do("POST", "/v1/identity/keys", "").want(t, "rotate", 200, "")
	if two := read(); len(two.Keys) != 2 || two.Keys[0]["kid"] != one.Keys[0]["kid"] || two.Keys[1]["kid"] == one.Keys[0]["kid"] {
		t.Errorf("after a rotation: %+v", two)
	}

	// Another gateway has the same keys, under another issuer.
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	f.serve(gateway.Config{Listen: "127.0.0.1:0", Public: gateway.PublicConfig{Issuer: "https://id.example.com/"}})
	f.do("GET", "/.well-known/openid-configuration", "", noKey...).want(t, "configuration", 200, "").decode(t, &conf)
	if again := read(); conf.Issuer != "https://id.example.com" || len(again.Keys) != 2 || again.Keys[0]["kid"] != one.Keys[0]["kid"] {
		t.Errorf("%+v %+v", conf, again)
	}
}

func TestIssuerMustBeAURL(t *testing.T) {
	f := newFixture(t)
	for _, bad := range []string{"id.example.com", "https://a.test?x=y", "ftp://a.test"} {
		if err := gateway.Run(t.Context(), gateway.Config{Log: f.log, View: f.view, Listen: "127.0.0.1:0", Public: gateway.PublicConfig{Issuer: bad}}); err == nil {
			t.Errorf("%q was accepted as an issuer", bad)
		}
	}
}
