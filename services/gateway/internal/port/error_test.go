package port_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
)

func TestUnreachablePortsAreA502InE2BsFormat(t *testing.T) {
	addr, _ := gateway(t, func(http.ResponseWriter, *http.Request) {})
	for host, want := range map[string]string{
		"8080-i9.x":       `{"sandboxId":"i9","message":"The sandbox was not found","code":502}`,
		"81-" + id + ".x": `{"sandboxId":"` + id + `","message":"The sandbox is running but port is not open","port":81,"code":502}`,
	} {
		for _, method := range []string{"GET", "POST"} {
			req := request(t, method, addr, "/", strings.NewReader("body"))
			req.Host = host
			res, got := do(t, req)
			if got != want || res.StatusCode != 502 || res.Header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("%s: %d %q %s, want %s", host, res.StatusCode, res.Header.Get("Content-Type"), got, want)
			}
		}
	}
}

// Browsers get a page, unless they ask for JSON.
func TestBrowsersGetAnErrorPage(t *testing.T) {
	addr, in := gateway(t, func(http.ResponseWriter, *http.Request) {})
	const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
	for _, tt := range []struct {
		name, host, agent, accept string
		private                   bool
		status                    int
		page, text                string
	}{
		{"gone", "8080-i9.x", firefox, "text/html,*/*;q=0.8", false, 502, "Sandbox i9", "The sandbox was not found"},
		{"closed", "81-" + id + ".x", firefox, "text/html", false, 502, "Sandbox " + id + ", port 81", "The sandbox is running but port is not open"},
		{"private", "8080-" + id + ".x", firefox, "text/html", true, 403, "Sandbox " + id, "Sandbox is secured with traffic access token"},
		{"a script that wants JSON", "8080-i9.x", firefox, "application/json", false, 502, "", "The sandbox was not found"},
		{"an SDK", "8080-i9.x", "e2b-js-sdk/2.51.0", "*/*", false, 502, "", "The sandbox was not found"},
		{"a name that needs escaping", "127.0.0.1", firefox, "", false, 502, "Sandbox &lt;b&gt;", "The sandbox was not found"},
	} {
		in.net = sandbox.Network{Private: tt.private}
		req := request(t, "GET", addr, "/", nil)
		req.Host = tt.host
		if tt.host == "127.0.0.1" {
			req.Header.Set("E2b-Sandbox-Id", "<b>")
			req.Header.Set("E2b-Sandbox-Port", "8080")
		}
		req.Header.Set("User-Agent", tt.agent)
		req.Header.Set("Accept", tt.accept)
		res, got := do(t, req)
		want := "application/json; charset=utf-8"
		if tt.page != "" {
			want = "text/html; charset=utf-8"
		}
		if res.StatusCode != tt.status || res.Header.Get("Content-Type") != want || !strings.Contains(got, tt.page) || !strings.Contains(got, tt.text) {
			t.Errorf("%s: %d %q %s", tt.name, res.StatusCode, res.Header.Get("Content-Type"), got)
		}
	}
}

func TestPrivatePortsRequireTheTrafficToken(t *testing.T) {
	addr, in := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Host+r.Header.Get("E2b-Traffic-Access-Token"))
	})
	in.net = sandbox.Network{Private: true, MaskHost: "localhost:${PORT}"}
	for token, want := range map[string]string{
		"":      `{"sandboxId":"` + id + `","message":"Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing","code":403}`,
		"wrong": `{"sandboxId":"` + id + `","message":"Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid","code":403}`,
		"right": "localhost:8080",
	} {
		req := request(t, "GET", addr, "/", nil)
		if token != "" {
			req.Header.Set("e2b-traffic-access-token", token)
		}
		if _, got := do(t, req); got != want {
			t.Errorf("token %q: %s", token, got)
		}
	}
}
