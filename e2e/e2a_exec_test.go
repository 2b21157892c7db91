package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// vm is a sandbox of e2a.
type vm struct {
	api *rig.API
	ID  string `json:"vm_id"`
}

// newVM creates a sandbox from the template standard with further fields.
func newVM(t *testing.T, a *rig.API, fields ...any) *vm {
	t.Helper()
	body := map[string]any{"template": "standard"}
	for i := 0; i+1 < len(fields); i += 2 {
		body[fmt.Sprint(fields[i])] = fields[i+1]
	}
	v := &vm{api: a}
	a.Want(t, http.StatusCreated, http.MethodPost, "/v1/sandboxes", body, "Authorization", "Bearer "+a.Key).Decode(t, v)
	t.Cleanup(func() { v.do(t, http.MethodDelete, "", nil) })
	return v
}

// box returns its id at E2B's routes.
func (v *vm) box() string { return strings.TrimPrefix(v.ID, "sbx_") }

// do sends a request for a route of the sandbox.
func (v *vm) do(t *testing.T, method, path string, body any, headers ...string) rig.Answer {
	t.Helper()
	return v.api.Do(t, method, "/v1/sandboxes/"+v.ID+path, body, append([]string{"Authorization", "Bearer " + v.api.Key}, headers...)...)
}

// executed is the response to a command.
type executed struct {
	Output    string
	OutputB64 *string `json:"output_b64"`
	ExitCode  *int    `json:"exit_code"`
	Error     string
}

func (v *vm) exec(t *testing.T, command string) (x executed) {
	t.Helper()
	ans := v.do(t, http.MethodPost, "/exec", map[string]string{"command": command})
	if ans.Status != http.StatusOK {
		t.Fatalf("%s: %v", command, ans)
	}
	ans.Decode(t, &x)
	return x
}

// begin starts a command at a gateway, and returns a channel with the response.
func (v *vm) begin(command string, at *rig.API) <-chan string {
	done := make(chan string, 1)
	go func() {
		ans, err := at.Call(http.MethodPost, "/v1/sandboxes/"+v.ID+"/exec", map[string]string{"command": command}, "Authorization", "Bearer "+at.Key)
		done <- fmt.Sprint(ans, err)
	}()
	return done
}

// ended reports whether the sandbox has ended.
func (v *vm) ended(t *testing.T) bool {
	ans := v.do(t, http.MethodGet, "", nil)
	return ans.Status == http.StatusNotFound || strings.Contains(string(ans.Body), `"state":"destroyed"`)
}

// TestE2AExec covers E-100 to E-108.
func TestE2AExec(t *testing.T) {
	t.Parallel()
	v := newVM(t, sharedUp(t).API)
	for command, want := range map[string]string{
		"echo a && echo b | tr b c":                      "a\nc\n0 ",
		"for i in 1 2 3; do echo $i; echo e$i >&2; done": "1\ne1\n2\ne2\n3\ne3\n0 ",
		"exit 3":               "3 ",
		"kill -9 $$":           " signaled",
		"printf 'h\\303\\244'": "hä0 ",
		"printf 'a\\377'":      "a\uFFFD0 ",
		"sleep 1; echo late":   "late\n0 ",
	} {
		x := v.exec(t, command)
		got := x.Output
		if x.ExitCode != nil {
			got += fmt.Sprint(*x.ExitCode)
		}
		if got += " " + x.Error; got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if x := v.exec(t, "head -c 5242880 /dev/zero | tr '\\0' x"); len(x.Output) != 5<<20 || x.OutputB64 != nil || strings.Trim(x.Output, "x") != "" {
		t.Errorf("%d bytes of 5 MiB", len(x.Output))
	}
	v.do(t, http.MethodPost, "/files?path=/tmp/random", randomBytes(t, 256), "Content-Type", "application/octet-stream")
	x := v.exec(t, "cat /tmp/random; sha256sum < /tmp/random >&2")
	if x.OutputB64 == nil {
		t.Fatalf("%q without its bytes", x.Output)
	}
	raw, err := base64.StdEncoding.DecodeString(*x.OutputB64)
	must(t, err)
	if len(raw) < 256 || string([]rune(string(raw))) != x.Output {
		t.Errorf("%d bytes, %q", len(raw), x.Output)
	}

	// The command of a client that hangs up ends.
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.api.URL+"/v1/sandboxes/"+v.ID+"/exec", strings.NewReader(`{"command":"echo $$ > /tmp/pid; echo begun; exec sleep 1000"}`))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+v.api.Key)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil { // the command has begun
		t.Fatal(err)
	}
	if x := v.exec(t, "kill -0 $(cat /tmp/pid)"); x.ExitCode == nil || *x.ExitCode != 0 {
		t.Fatalf("it does not run: %+v", x)
	}
	cancel()
	if !rig.Poll(10*time.Second, func() bool { x := v.exec(t, "kill -0 $(cat /tmp/pid)"); return x.ExitCode != nil && *x.ExitCode != 0 }) {
		t.Error("the command still runs")
	}
}

func randomBytes(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	must(t, err)
	return b
}

// TestE2AFilesLogsCancel covers E-110 to E-141 on a real sandbox.
func TestE2AFilesLogsCancel(t *testing.T) {
	t.Parallel()
	v := newVM(t, sharedUp(t).API)
	content := randomBytes(t, 1<<20)
	for _, b := range [][]byte{[]byte("old"), content} {
		if ans := v.do(t, http.MethodPost, "/files?path=/tmp/a%20b", b, "Content-Type", "application/octet-stream"); ans.Status != 200 || string(ans.Body) != `{"status":"uploaded"}` {
			t.Fatalf("upload: %v", ans)
		}
	}
	if ans := v.do(t, http.MethodGet, "/files?path=/tmp/a%20b", nil); ans.Status != 200 || ans.Header.Get("Content-Type") != "application/octet-stream" || !bytes.Equal(ans.Body, content) {
		t.Errorf("download: %d, %s, %d bytes", ans.Status, ans.Header.Get("Content-Type"), len(ans.Body))
	}
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/tmp/none/x", 400}, {http.MethodPost, "/tmp", 400}, {http.MethodPost, "/tmp/../x", 400}, {http.MethodGet, "/tmp/none", 404}, {http.MethodGet, "/tmp", 400},
	} {
		if ans := v.do(t, tt.method, "/files?path="+tt.path, []byte("x")); ans.Status != tt.want {
			t.Errorf("%s %s: %v, want %d", tt.method, tt.path, ans, tt.want)
		}
	}

	agent := spec("/bin/sh", []string{"-c", "echo out; sleep 0.1; echo err >&2; sleep 0.1; echo end"}, "tag", "agent")
	v.api.StartSpec(t, v.box(), agent).All(t)
	const want = `{"content":"out\nerr\nend\n","truncated":false,"total_bytes":12}`
	if ans := v.do(t, http.MethodGet, "/logs", nil); string(ans.Body) != want {
		t.Errorf("logs: %v", ans)
	}
	if ans := v.do(t, http.MethodGet, "/logs?lines=1", nil); string(ans.Body) != `{"content":"end\n","truncated":true,"total_bytes":12}` {
		t.Errorf("logs: %v", ans)
	}

	if ans := v.do(t, http.MethodPost, "/cancel", nil); ans.Status != 200 || string(ans.Body) != `{"vm_id":"`+v.ID+`","cancelled":false,"reason":"user_request"}` {
		t.Errorf("cancel: %v", ans)
	}
	v.api.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+v.box()+"/pause", nil)
	if ans := v.do(t, http.MethodPost, "/cancel", nil); ans.Status != http.StatusConflict {
		t.Errorf("cancel of a paused one: %v", ans)
	}
	if ans := v.do(t, http.MethodPost, "/exec", `{"command":"true"}`); ans.Status != http.StatusConflict {
		t.Errorf("command in a paused one: %v", ans)
	}
	if ans := v.do(t, http.MethodDelete, "", nil); ans.Status != http.StatusOK {
		t.Errorf("DELETE: %v", ans)
	}
	for path, status := range map[string]int{"/exec": 404, "/cancel": 409} {
		if ans := v.do(t, http.MethodPost, path, map[string]string{"command": "true"}); ans.Status != status {
			t.Errorf("%s after the end: %v, want %d", path, ans, status)
		}
	}
	if ans := v.do(t, http.MethodGet, "/logs", nil); string(ans.Body) != want {
		t.Errorf("logs after the end: %v", ans)
	}
}

// TestE2AIdle covers E-242 to E-247, E-252 and AMB-18, with two gateways and two reapers: sandboxes end between
// their idle timeout and 10 s later, and not while a command runs.
func TestE2AIdle(t *testing.T) {
	t.Parallel()
	const idle = 4
	s := newTopology(t, rig.Topology{Gateways: 2, Reapers: 2})
	first, second := s.APIs[0], s.APIs[1]
	begin := time.Now()
	extended := newVM(t, first, "idle_timeout_seconds", 3600, "max_lifetime_seconds", 16)
	first.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+extended.box()+"/timeout", map[string]int{"timeout": 80000})
	unused := newVM(t, first, "idle_timeout_seconds", idle)
	created := time.Now()
	held := newVM(t, first, "idle_timeout_seconds", idle)
	lasting := held.begin("sleep 9; echo done", first)
	orphan := newVM(t, first, "idle_timeout_seconds", idle)
	lost := orphan.begin("touch /tmp/begun; sleep 1000", second)
	until := func(what string, v *vm, from time.Time) {
		t.Helper()
		if !rig.Poll(time.Minute, func() bool { return v.ended(t) }) {
			t.Errorf("%s: still there", what)
		}
		if took := time.Since(from); took > (idle+10)*time.Second {
			t.Errorf("%s: ended after %v", what, took)
		}
	}
	if !rig.Poll(time.Minute, func() bool { return orphan.do(t, http.MethodGet, "/files?path=/tmp/begun", nil).Status == 200 }) {
		t.Fatal("the command does not run")
	}
	s.Program("gateway-2").Kill9()
	killed := time.Now()
	<-lost
	until("unused", unused, created)
	if out := <-lasting; !strings.Contains(out, `"done\n","exit_code":0`) {
		t.Errorf("a command of 9 s in a sandbox with an idle timeout of %d s: %s", idle, out)
	}
	released := time.Now()
	until("its gateway was killed", orphan, killed)
	until("used", held, released)
	if !rig.Poll(time.Minute, func() bool { return extended.ended(t) }) {
		t.Error("the hard end was moved")
	}
	t.Logf("the last sandbox ended %v after its creation", time.Since(begin))
	must(t, s.RestartAll())
}
