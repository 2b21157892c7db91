package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
)

const hidden = `"network":{"allowOut":["api.test"],"denyOut":["0.0.0.0/0"],"httpsPorts":[8443],
	"egressProxy":{"address":"proxy.test:1080","username":"u","password":"canary-password"},
	"rules":{"API.test":[{"transform":{"headers":{"authorization":"Bearer canary-header"}}},{}],"*.b.test":[{"transform":{"headers":{"X":"y"}}}]}}`

// network returns the network of a sandbox in a response.
func (f *fixture) network(id string) map[string]any {
	f.t.Helper()
	var d struct {
		Network map[string]any `json:"network"`
	}
	f.do("GET", "/sandboxes/"+id, "").decode(f.t, &d)
	return d.Network
}

func TestNetworkRulesAreReturnedUnchanged(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base",` + hidden + `}`)
	want := `map[allowOut:[api.test] allowPublicTraffic:true denyOut:[0.0.0.0/0] egressProxy:map[address:proxy.test:1080 username:u] httpsPorts:[8443] maskRequestHost: ` +
		`rules:map[*.b.test:[map[transform:map[headers:map[X:y]]]] api.test:[map[transform:map[headers:map[authorization:Bearer canary-header]]] map[transform:map[]]]]]`
	if got := fmt.Sprint(f.network(m.ID)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A change clears what it leaves out, except what is only set at creation.
	f.do("PUT", "/sandboxes/"+m.ID+"/network", `{"rules":{"c.test":[{"transform":{"headers":{"X":"z"}}}]}}`).want(t, "a change", http.StatusNoContent, "")
	want = `map[allowOut:[] allowPublicTraffic:true denyOut:[] httpsPorts:[8443] maskRequestHost: rules:map[c.test:[map[transform:map[headers:map[X:z]]]]]]`
	if got := fmt.Sprint(f.network(m.ID)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	plain := f.create(base)
	if got := f.network(plain.ID); got != nil {
		t.Errorf("sandbox without a network: %v", got)
	}
}

// A port that is closed to the public must not be reachable through an open data plane.
func TestPrivateTrafficRequiresSecure(t *testing.T) {
	f := newFixture(t)
	const private = `{"templateID":"base","network":{"allowPublicTraffic":false}`
	f.do("POST", "/sandboxes", private+`,"secure":false}`).wantError(t, "not secured", 400)
	f.do("POST", "/sandboxes", private+`}`).wantError(t, "not secured by default", 400)
	f.do("POST", "/sandboxes", private+`,"secure":true}`).want(t, "secured", 201, "")
	f.do("POST", "/v2/sandboxes", private+`}`).want(t, "always secured", 201, "")
}

// Headers are only shown by GET of the one sandbox, to principals that may set them;
// passwords are never shown.
func TestNetworkSecretsAreHidden(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base",` + hidden + `}`)
	f.do("PUT", "/sandboxes/"+m.ID+"/network", "{"+strings.TrimSuffix(strings.TrimPrefix(hidden, `"network":{`), "}")+"}").want(t, "a change", http.StatusNoContent, "")
	shown := map[string]string{}
	for what, a := range map[string]answer{
		"the list":         f.do("GET", "/v2/sandboxes", ""),
		"logs":             f.do("GET", "/v2/sandboxes/"+m.ID+"/logs", ""),
		"a refused header": f.do("POST", "/sandboxes", `{"templateID":"base","network":{"rules":{"a.test":[{"transform":{"headers":{"Host":"canary-header"}}}]}}}`),
		"a refused secret": f.do("POST", "/sandboxes", `{"templateID":"base","network":{"rules":{"a.test":[{"transform":{"headers":{"X":"canary-header${e2b.other.x}"}}}]}}}`),
		"a refused proxy":  f.do("POST", "/sandboxes", `{"templateID":"base","network":{"egressProxy":{"address":"x","password":"canary-password"}}}`),
		"another tenant":   f.do("GET", "/sandboxes/"+m.ID, "", "X-Api-Key", bobKey),
		"connect":          f.do("POST", "/sandboxes/"+m.ID+"/connect", `{"timeout":60}`),
	} {
		shown[what] = a.body
	}
	shown["detail's password"] = strings.ReplaceAll(f.do("GET", "/sandboxes/"+m.ID, "").body, "canary-header", "")
	if err := f.view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, _ := f.view.Sandbox(sandbox.ID(m.ID))
	if len(st.Network.Transforms) != 3 || st.Network.Proxy == nil {
		t.Errorf("network in the record: %+v", st.Network)
	}
	shown["the record"] = fmt.Sprintf("%+v %+v", st, st.Network.Proxy)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	shown["the log"] = f.logs.String()
	for what, text := range shown {
		if strings.Contains(text, "canary-") {
			t.Errorf("%s contains a secret: %s", what, text)
		}
	}
}
