package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// userToken signs up, which requires the test mode, and returns a token.
func userToken(t *testing.T, url string) string {
	t.Helper()
	var sent struct {
		Code string `json:"verify_code"`
	}
	must(t, json.Unmarshal([]byte(postE2A(t, url, "/v1/auth/register", `{"email":"you@e2a-qa.test"}`).body), &sent))
	var verified struct{ Token string }
	a := postE2A(t, url, "/v1/auth/verify-otp", `{"email":"you@e2a-qa.test","code":"`+sent.Code+`"}`)
	if must(t, json.Unmarshal([]byte(a.body), &verified)); verified.Token == "" {
		t.Fatalf("%+v", a)
	}
	return verified.Token
}

// docs/workspaces.md, word for word (E-356 to E-363), and kill -9 in the middle of an upload: the older
// file stays, and is read by a link from before.
func TestE2AWorkspaces(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{Args: []string{"--sign-up-test-mode"}})
	token := userToken(t, u.URL)
	raw, err := os.ReadFile("../docs/workspaces.md")
	must(t, err)
	env := []string{"API=" + u.URL, "TOKEN=" + token, "PATH=" + os.Getenv("PATH")}
	out := (&docsReader{string(raw), env}).follow(t, "A file", 0)
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(raw))
	want := strings.Split(strings.TrimSpace(shown[1]), "\n")
	if len(out) != 1+len(want) || out[0] != "" {
		t.Fatalf("%q", out)
	}
	at := regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)
	for i := range want {
		if got := at.ReplaceAllString(out[i+1], "T"); got != at.ReplaceAllString(want[i], "T") {
			t.Errorf("%s, want %s", out[i+1], want[i])
		}
	}

	do := func(method, url, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(all)
	}
	const file = "/v1/workspaces/app/set/files/a"
	link := func(method string) string {
		t.Helper()
		code, body := do(method, u.URL+file, "")
		var l struct{ URL string }
		if must(t, json.Unmarshal([]byte(body), &l)); code != 200 {
			t.Fatalf("%s: %d %s", method, code, body)
		}
		return l.URL
	}
	put := link("PUT")
	if code, body := do("PUT", put, "old"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	get := link("GET")
	host, path, _ := strings.Cut(strings.TrimPrefix(put, "http://"), "/")
	conn, err := net.Dial("tcp", host)
	must(t, err)
	defer conn.Close()
	const size = 8 << 20
	fmt.Fprintf(conn, "PUT /%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path, size)
	_, err = conn.Write(make([]byte, size-1))
	must(t, err)
	u.Kill9()
	must(t, u.Restart())
	if code, body := do("GET", strings.Replace(get, "http://"+host, u.URL, 1), ""); code != 200 || body != "old" {
		t.Errorf("%d, %d bytes", code, len(body))
	}
	if code, body := do("GET", u.URL+"/v1/workspaces", ""); code != 200 || body != `{"workspaces":[{"app_id":"app","capset_id":"set","size_bytes":3}]}` {
		t.Errorf("%d %s", code, body)
	}
}
