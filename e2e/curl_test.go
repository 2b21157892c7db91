package e2e_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// curl runs curl and returns its output.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--max-time", "25"}, args...)...).Output()
	if err != nil {
		t.Fatalf("curl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestCurl starts, reads and ends a command with curl only.
func TestCurl(t *testing.T) {
	a := api(t)
	key := "X-API-Key: " + a.Key
	var box rig.Sandbox
	made := curl(t, "-X", "POST", a.URL+"/sandboxes", "-H", key, "-H", "Content-Type: application/json", "-d", `{"templateID":"base","timeout":60}`)
	if err := json.Unmarshal([]byte(made), &box); err != nil || box.ID == "" {
		t.Fatalf("create: %s (%v)", made, err)
	}
	defer curl(t, "-X", "DELETE", a.URL+"/sandboxes/"+box.ID, "-H", key)

	out := curl(t, "-N", a.URL+"/commands?sandbox="+box.ID, "-H", key, "-d", `{"cmd":"seq 1 3; echo oops >&2; exit 4"}`)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	var start rig.Line
	if err := json.Unmarshal([]byte(lines[0]), &start); err != nil || start.Type != "start" {
		t.Fatalf("first line %q (%v)", lines[0], err)
	}
	for _, want := range []string{`{"type":"stdout","data":"2\n"}`, `{"type":"stderr","data":"oops\n"}`, `{"type":"end","exit_code":4}`} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no line %s in\n%s", want, out)
		}
	}
	record := a.URL + "/v1/processes/" + start.Process + "/events"
	ndjson := curl(t, "-N", record, "-H", key)
	if !strings.HasPrefix(ndjson, `{"seq":1,`) || !strings.Contains(ndjson, `"type":"end","exit_code":4`) {
		t.Errorf("NDJSON:\n%s", ndjson)
	}
	sse := curl(t, "-N", record, "-H", key, "-H", "Accept: text/event-stream")
	if !strings.HasPrefix(sse, "id: 1\nevent: accepted\ndata: {") || !strings.Contains(sse, "\nevent: end\ndata: {") || !strings.HasSuffix(sse, "}\n\n") {
		t.Errorf("SSE:\n%s", sse)
	}
	rest := curl(t, "-N", record, "-H", key, "-H", "Accept: text/event-stream", "-H", "Last-Event-ID: 2")
	if !strings.HasPrefix(rest, "id: 3\n") || !strings.HasSuffix(sse, rest) {
		t.Errorf("SSE after 2:\n%s", rest)
	}
	code := curl(t, "-o", "/dev/null", "-w", "%{http_code}", record)
	if code != "401" {
		t.Errorf("without a key: %s", code)
	}
}
