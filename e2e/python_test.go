package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// asPython lists the headers of every request of the Python SDK.
var asPython = []string{
	"User-Agent", "e2b-python-sdk/2.45.1", "Accept", "*/*", "lang", "python", "lang_version", "3.12.3", "package_version", "2.45.1",
	"publisher", "e2b", "sdk_runtime", "python", "system", "Linux", "Accept-Encoding", "gzip, deflate",
}

// The Python SDK parses a response only with the documented status and, for JSON, the JSON
// content type; its models require code and message in an error.
func TestPythonControlPlane(t *testing.T) {
	a := api(t)
	box := a.Create(t, "secure", true, "allow_internet_access", true, "autoPause", false, "metadata", map[string]string{"py": "a b&c=ü"}, "envVars", map[string]string{}, "timeout", 300)
	path := "/sandboxes/" + box.ID
	snapshot := ""
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", path, "", 200},
		{"GET", "/v2/sandboxes?metadata=py%3Da%252520b%252526c%25253D%2525C3%2525BC&limit=100", "", 200},
		{"GET", "/v2/sandboxes?metadata=py%3Da%252520b%252526c%25253D%2525C3%2525BC&state=running&state=paused&limit=100", "", 200},
		{"GET", path + "/metrics", "", 200},
		{"POST", path + "/timeout", `{"timeout": 300}`, 204},
		{"POST", path + "/connect", `{"timeout": 300}`, 200},
		{"PUT", path + "/network", `{"allowOut": ["8.8.8.8"], "denyOut": ["0.0.0.0/0"]}`, 204},
		{"POST", path + "/snapshots", `{}`, 201},
		{"GET", "/snapshots?sandboxID=" + box.ID + "&limit=100", "", 200},
		{"POST", path + "/pause", "", 204},
		{"POST", path + "/pause", "", 409},
		{"POST", path + "/connect", `{"timeout": 300}`, 201},
		{"POST", path + "/timeout", `{"timeout": -1}`, 400},
		{"POST", path + "/connect", `{"timeout": "soon"}`, 400},
		{"GET", "/sandboxes/i00000000000000000000", "", 404},
		{"DELETE", "/sandboxes/i00000000000000000000", "", 404},
		{"POST", "/sandboxes", `{"templateID": "no-such-template", "timeout": 300}`, 404},
		{"GET", "/templates/aliases/no-such-template", "", 404},
		{"DELETE", path, "", 204},
		{"DELETE", path, "", 404},
	} {
		var body any
		headers := asPython
		if c.body != "" {
			body = c.body
		}
		ans := a.Do(t, c.method, c.path, body, headers...)
		what := c.method + " " + c.path
		if ans.Status != c.status {
			t.Errorf("%s: %v, want %d", what, ans, c.status)
			continue
		}
		json := strings.HasPrefix(ans.Header.Get("Content-Type"), "application/json")
		switch {
		case c.status == 204 && len(ans.Body) > 0, c.status != 204 && !json:
			t.Errorf("%s: %q of type %q", what, ans.Body, ans.Header.Get("Content-Type"))
		case c.status >= 400:
			wantPythonError(t, what, ans)
		case strings.HasPrefix(c.path, "/v2/sandboxes"):
			if ans.Header.Get("X-Next-Token") != "" || strings.Count(string(ans.Body), `"sandboxID"`) != 1 {
				t.Errorf("%s: %v, %v", what, ans, ans.Header)
			}
		case strings.HasSuffix(c.path, "/snapshots"):
			var made struct{ SnapshotID string }
			ans.Decode(t, &made)
			snapshot = made.SnapshotID
		}
	}
	percent := "/templates/" + strings.ReplaceAll(snapshot, ":", "%3A")
	a.Want(t, http.StatusNoContent, http.MethodDelete, percent, nil, asPython...)
	a.Want(t, http.StatusNotFound, http.MethodDelete, percent, nil, asPython...)
}

func wantPythonError(t *testing.T, what string, ans rig.Answer) {
	t.Helper()
	var e struct {
		Code    *int    `json:"code"`
		Message *string `json:"message"`
	}
	if err := json.Unmarshal(ans.Body, &e); err != nil || e.Code == nil || *e.Code != ans.Status || e.Message == nil || *e.Message == "" {
		t.Errorf("%s: %v", what, ans)
	}
}

// Older releases of the Python SDK send JSON over several lines, declare the identity
// encoding, and set a timeout for each request.
func TestPythonRPCs(t *testing.T) {
	a := api(t)
	box := a.Create(t, "secure", true)
	headers := append([]string{
		"E2b-Sandbox-Id", box.ID, "E2b-Sandbox-Port", "49983", "X-Access-Token", box.Token, "Content-Type", "application/json",
		"Connect-Protocol-Version", "1", "Content-Encoding", "identity", "Connect-Timeout-Ms", "60000",
	}, asPython...)
	headers = append(headers, "Accept-Encoding", "identity", "User-Agent", "connectrpc/0.11.0")
	for _, c := range []struct {
		method, body string
		status       int
		has          string
	}{
		{"filesystem.Filesystem/MakeDir", "{\n  \"path\": \"py/d\"\n}", 200, `"FILE_TYPE_DIRECTORY"`},
		{"filesystem.Filesystem/MakeDir", "{\n  \"path\": \"py/d\"\n}", 409, `"already_exists"`},
		{"filesystem.Filesystem/Stat", "{\n  \"path\": \"py/d\"\n}\n", 200, `"size":"`},
		{"filesystem.Filesystem/Stat", "{\"path\": \"py/none\"}", 404, `"not_found"`},
		{"filesystem.Filesystem/ListDir", "{\n  \"path\": \"py\",\n  \"depth\": 1\n}", 200, `"name":"d"`},
		{"filesystem.Filesystem/Move", "{\n  \"source\": \"py/d\",\n  \"destination\": \"py/e\"\n}", 200, `"name":"e"`},
		{"filesystem.Filesystem/CreateWatcher", "{\n  \"path\": \"py\",\n  \"recursive\": true\n}", 200, `"watcherId"`},
		{"filesystem.Filesystem/Remove", "{\n  \"path\": \"py\"\n}", 200, `{}`},
		{"process.Process/List", "{}", 200, `{`},
		{"process.Process/SendSignal", "{\n  \"process\": {\n    \"pid\": 4194301\n  },\n  \"signal\": \"SIGNAL_SIGKILL\"\n}", 404, `"not_found"`},
	} {
		ans := a.Do(t, http.MethodPost, "/"+c.method, c.body, headers...)
		if ans.Status != c.status || !strings.Contains(string(ans.Body), c.has) || ans.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %q: %v of type %q", c.method, c.body, ans, ans.Header.Get("Content-Type"))
		}
	}

	// A command in a chunked body, and its end.
	pretty := "{\n  \"process\": {\n    \"cmd\": \"/bin/bash\",\n    \"args\": [\n      \"-l\",\n      \"-c\",\n      \"echo $A; exit 3\"\n    ],\n    \"envs\": {\n      \"A\": \"\\u00fc\"\n    }\n  },\n  \"stdin\": false\n}"
	run := a.Dial(t, rig.Request{Path: "/process.Process/Start", Body: rig.Seal(0, []byte(pretty)), Chunked: true, Headers: []string{
		"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1", "Connect-Content-Encoding", "identity", "Connect-Accept-Encoding", "identity",
		"Connect-Timeout-Ms", "60000", "Keepalive-Ping-Interval", "50", "User-Agent", "connectrpc/0.11.0", "E2b-Sandbox-Id", box.ID, "X-Access-Token", box.Token,
	}}).All(t)
	if run.Error != nil || run.Stdout() != "ü\n" || run.End == nil || run.End.ExitCode != 3 {
		t.Errorf("%q, %+v, %s", run.Stdout(), run.End, run.Last.Payload)
	}
}

// httpx writes a form with its own boundary, a content length, and names in which only
// quotes and line ends are escaped.
func TestPythonForms(t *testing.T) {
	a := api(t)
	box := a.Create(t, "secure", true)
	const boundary = "2f1f3c7a9f0d4b6f8e5d1c2b3a495867"
	part := func(name, text string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\nContent-Type: text/plain\r\n\r\n" + text + "\r\n"
	}
	headers := append([]string{
		"E2b-Sandbox-Id", box.ID, "E2b-Sandbox-Port", "49983", "X-Access-Token", box.Token,
		"Content-Type", "multipart/form-data; boundary=" + boundary,
	}, asPython...)
	body := part("/tmp/py/one.txt", "one") + part("/tmp/py/ü two.txt", "two\r\n--") + "--" + boundary + "--\r\n"
	ans := a.Want(t, http.StatusOK, http.MethodPost, "/files", body, headers...)
	var made []struct{ Path, Name, Type string }
	ans.Decode(t, &made)
	if got := fmt.Sprint(made); got != "[{/tmp/py/one.txt one.txt file} {/tmp/py/ü two.txt ü two.txt file}]" {
		t.Errorf("created %s", got)
	}
	one := part("/anything", "again") + "--" + boundary + "--\r\n"
	a.Want(t, http.StatusOK, http.MethodPost, "/files?path=%2Ftmp%2Fpy%2Fone.txt", one, headers...)
	for path, want := range map[string]string{
		"/files?path=/tmp/py/one.txt":              "again",
		"/files?path=%2Ftmp%2Fpy%2F%C3%BC+two.txt": "two\r\n--",
		"/files?path=/tmp/py/%C3%BC%20two.txt":     "two\r\n--",
	} {
		got := a.Want(t, http.StatusOK, http.MethodGet, path, nil, append(headers, "Accept-Encoding", "identity")...)
		if string(got.Body) != want {
			t.Errorf("%s: %q, want %q", path, got.Body, want)
		}
	}
	missing := a.Want(t, http.StatusNotFound, http.MethodGet, "/files?path=/tmp/py/none", nil, headers...)
	wantPythonError(t, "a file that is not there", missing)
}
