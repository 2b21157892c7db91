package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A file of a sandbox never runs as a page of the gateway, whose origin is that of the console: its
// script could register a service worker there and read the API key. TORTURE F 120.
func TestFilesAreNoPagesOfTheGateway(t *testing.T) {
	t.Parallel()
	a := api(t)
	ans := a.Do(t, http.MethodPost, "/sandboxes", []byte(`{"templateID":"base","secure":true}`))
	var box struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal(ans.Body, &box); err != nil || box.EnvdAccessToken == "" {
		t.Fatalf("create: %v", ans)
	}
	t.Cleanup(func() { a.Do(t, http.MethodDelete, "/sandboxes/"+box.SandboxID, nil) })
	token := []string{"X-Access-Token", box.EnvdAccessToken}
	dir := "/tmp/pages-" + box.SandboxID
	for name, contentType := range map[string]string{
		"page.html": "text/html", "image.svg": "image/svg+xml", "worker.js": "text/javascript", "feed.xml": "text/xml", "none": octets,
	} {
		path := dir + "/" + name
		in := filesPath(path, "sandbox", box.SandboxID)
		if ans := a.Do(t, http.MethodPost, in, []byte("<script>alert(1)</script>"), append([]string{"Content-Type", octets}, token...)...); ans.Status != 200 {
			t.Fatalf("upload: %v", ans)
		}
		sum := sha256.Sum256([]byte(path + ":read::" + box.EnvdAccessToken))
		signed := "/files?path=" + url.QueryEscape(path) + "&signature=" + url.QueryEscape("v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		for _, tt := range []struct {
			what, path string
			headers    []string
			own        bool // an origin of its own
		}{
			{"in the query", in, token, false},
			{"in a header", filesPath(path), append([]string{"E2b-Sandbox-Id", box.SandboxID}, token...), false},
			{"signed", signed, []string{"X-Api-Key", ""}, false},
			{"signed, of a part", signed, []string{"X-Api-Key", "", "Range", "bytes=0-7"}, false},
			{"in the host", signed, []string{"Host", "49983-" + box.SandboxID + ".localhost"}, true},
		} {
			ans := a.Do(t, http.MethodGet, tt.path, nil, tt.headers...)
			policy, sniff, kind := ans.Header.Get("Content-Security-Policy"), ans.Header.Get("X-Content-Type-Options"), ans.Header.Get("Content-Type")
			if ans.Status/100 != 2 || sniff != "nosniff" || (policy == "sandbox") == tt.own || !strings.HasPrefix(kind, contentType) {
				t.Errorf("%s, %s: %d with policy %q, %q, type %q", name, tt.what, ans.Status, policy, sniff, kind)
			}
		}
	}
}
