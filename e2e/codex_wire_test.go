package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/e2e/rig"
)

// newCodex returns a connection after the handshake, in a new sandbox.
func newCodex(t *testing.T) (*codexConn, rig.Sandbox) {
	t.Helper()
	a := api(t)
	box := a.Create(t)
	c := dialCodex(t, a, "/codex/"+box.ID)
	c.begin("")
	return c, box
}

// credentials come before the upgrade.
func TestCodexCredentials(t *testing.T) {
	t.Parallel()
	a := api(t)
	box, other := a.Create(t, "secure", true), a.Create(t, "secure", true)
	ctx, cancel := context.WithTimeout(t.Context(), codexTimeout)
	defer cancel()
	for _, tt := range []struct {
		name, path string
		headers    []string
		want       int
	}{
		{"none", "/codex/" + box.ID, nil, 401},
		{"none at the root", "/", nil, 401},
		{"none for a new sandbox", "/codex/new", nil, 401},
		{"a wrong token", "/codex/" + box.ID + "?token=x", nil, 401},
		{"a key in the query", "/codex/" + box.ID + "?token=" + a.Key, nil, 401},
		{"another sandbox's token", "/codex/" + box.ID + "?token=" + other.Token, nil, 401},
		{"a token for a new sandbox", "/codex/new", []string{"Authorization", "Bearer " + box.Token}, 401},
		{"a foreign origin", "/?token=" + box.Token, []string{"Origin", "https://example.com"}, 403},
		{"an unknown sandbox", "/codex/inone", []string{"Authorization", "Bearer " + a.Key}, 404},
		{"a key without a sandbox", "/", []string{"Authorization", "Bearer " + a.Key}, 400},
		{"an unknown policy", "/codex/" + box.ID + "?on_disconnect=x", []string{"Authorization", "Bearer " + a.Key}, 400},
		{"the token in the query", "/codex/" + box.ID + "?token=" + box.Token, nil, 101},
		{"the token in a header", "/codex/" + box.ID, []string{"Authorization", "Bearer " + box.Token}, 101},
		{"the token names the sandbox", "/?token=" + box.Token, nil, 101},
		{"a key", "/codex/" + box.ID, []string{"Authorization", "Bearer " + a.Key}, 101},
	} {
		ws, status, err := tryCodex(ctx, a, tt.path, tt.headers...)
		if ws != nil {
			ws.Close()
		}
		if status != tt.want {
			t.Errorf("%s: %d %v, want %d", tt.name, status, err, tt.want)
		}
	}
	a.Want(t, http.StatusOK, http.MethodGet, "/readyz", nil, "X-Api-Key", "")
}

//
func TestCodexHandshake(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dialCodex(t, a, "/codex/"+box.ID).begin("") // warms up
	c := dialCodex(t, a, "/codex/"+box.ID)
	calls := map[string]codexArgs{
		"process/start":     startArgs("p", "true"),
		"process/read":      {"processId": "p"},
		"process/write":     {"processId": "p", "chunk": ""},
		"process/terminate": {"processId": "p"},
	}
	for method, params := range calls {
		c.refused(-32600, method, params) // before initialize
	}
	c.refused(-32602, "initialize", codexArgs{})
	began := time.Now()
	var session map[string]any
	c.call("initialize", codexArgs{"clientName": "e2e"}, &session)
	t.Logf("initialize: %v", time.Since(began))
	if id, _ := session["sessionId"].(string); id == "" {
		t.Errorf("no session: %v", session)
	}
	for method, params := range calls {
		c.refused(-32600, method, params) // before initialized
	}
	c.refused(-32600, "initialize", codexArgs{"clientName": "e2e"})
	c.send(`{"method":"initialized","params":{"any":{"thing":1}}}`)
	c.start("p", "true")
	if o := c.closed("p"); o.code != 0 || o.exits != 1 {
		t.Errorf("%+v", o)
	}
	c.refused(-32600, "initialize", codexArgs{"clientName": "e2e"})
}

// envelopes and codes.
func TestCodexEnvelopes(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	for _, tt := range []struct {
		message, id string
		code        int
	}{
		{`{"id":"text","method":"environment/status"}`, `"text"`, 0},
		{`{"jsonrpc":"2.0","id":-7,"method":"environment/status","params":null}`, `-7`, 0},
		{`{"id":9007199254740993,"method":"zzz"}`, `9007199254740993`, -32600},
		{`{"id":"a\u0062","method":"capabilities/discoverV2","params":{}}`, `"a\u0062"`, -32601},
		{`{"id":10,"method":"process/read","params":{"processId":7}}`, `10`, -32602},
		{`{"id":11,"method":"process/read"}`, `11`, -32602},
		{`{"id":null,"method":"environment/status"}`, `-1`, -32600},
		{`[{"id":13,"method":"environment/status"}]`, `-1`, -32600},
		{`{"id":14,`, `-1`, -32600},
	} {
		c.send(tt.message)
		m := c.answer(tt.id)
		code := 0
		if m.Error != nil {
			code = m.Error.Code
		}
		if code != tt.code {
			t.Errorf("%s: %v, want %d", tt.message, m.Error, tt.code)
		}
	}
	c.start("still", "true")
	c.closed("still")
}

// any notification but initialized ends the connection.
func TestCodexForeignNotifications(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	c.send(`{"method":"foo"}`)
	ended := rig.Poll(codexTimeout, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err != nil
	})
	if !ended {
		t.Error("the connection is still open")
	}
}

// starts.
func TestCodexStarts(t *testing.T) {
	t.Parallel()
	c, box := newCodex(t)
	c.refused(-32602, "process/start", startArgs("p", "", "argv", []string{}))
	args := startArgs("p", "")
	delete(args, "argv")
	c.refused(-32602, "process/start", args)
	c.refused(-32602, "process/start", startArgs("p", "true", "cwd", "relative"))
	c.refused(-32603, "process/start", startArgs("p", "true", "cwd", "/dev/null/x"))
	var started codexArgs
	c.call("process/start", startArgs("p", "sleep 300"), &started)
	if started["processId"] != "p" {
		t.Errorf("%v", started)
	}
	c.refused(-32600, "process/start", startArgs("p", "true"))
	other := dialCodex(t, api(t), "/codex/"+box.ID)
	other.begin("")
	other.start("p", "echo other")
	if o := other.closed("p"); string(o.bytes["stdout"]) != "other\n" {
		t.Errorf("%+v", o)
	}
	c.call("process/terminate", codexArgs{"processId": "p"}, nil)
	c.closed("p")
	dir := t.TempDir() + "/not/there/yet" // clients send directories of their own
	c.start("made", "pwd", "cwd", dir)
	if o := c.closed("made"); string(o.bytes["stdout"]) != dir+"\n" {
		t.Errorf("%+v", o)
	}
}

// a process gets the environment and the name of the request, and nothing else.
func TestCodexExactStarts(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	env := map[string]string{"A": "1", "B": "two words"}
	c.start("environment", "", "argv", []string{"/usr/bin/env", "-0"}, "env", env)
	if o := c.closed("environment"); string(o.bytes["stdout"]) != "A=1\x00B=two words\x00" && string(o.bytes["stdout"]) != "B=two words\x00A=1\x00" {
		t.Errorf("environment: %q", o.bytes)
	}
	c.start("name", "echo $0", "argv", []string{"/bin/sh", "-c", "echo $0"}, "arg0", "zero")
	if o := c.closed("name"); string(o.bytes["stdout"]) != "zero\n" {
		t.Errorf("arg0: %q", o.bytes)
	}
	c.refused(-32603, "process/start", startArgs("missing", "", "argv", []string{"/no/such/program"}))
	c.start("missing", "true") // its name is free
	c.closed("missing")
}

// A requested policy is enforced, or the start is refused.
func TestCodexPolicies(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	dir := t.TempDir()
	root := codexArgs{"path": codexArgs{"type": "special", "value": codexArgs{"kind": "root"}}, "access": "read"}
	policy := func(entries ...codexArgs) codexArgs {
		return codexArgs{"cwd": dir, "workspaceRoots": []string{dir}, "permissions": codexArgs{
			"type": "managed", "network": "restricted", "file_system": codexArgs{"type": "restricted", "entries": entries},
		}}
	}
	roots := codexArgs{"path": codexArgs{"type": "special", "value": codexArgs{"kind": "project_roots"}}, "access": "write"}
	for _, tt := range []struct {
		name, script string
		policy       codexArgs
		want         int
	}{
		{"read-only: read", "cat /etc/passwd >/dev/null", policy(root), 0},
		{"read-only: write", "echo x >" + dir + "/a", policy(root), 2},
		{"workspace: write", "echo x >" + dir + "/b", policy(root, roots), 0},
		{"workspace: write outside", "echo x >/tmp/codex-outside", policy(root, roots), 2},
	} {
		args := startArgs(tt.name, tt.script, "cwd", dir, "sandbox", tt.policy)
		m := c.ask("process/start", args)
		if m.Error != nil && m.Error.Code == -32602 && !landlock(t) {
			continue
		}
		if m.Error != nil {
			t.Errorf("%s: %+v", tt.name, m.Error)
			continue
		}
		if o := c.closed(tt.name); o.code != tt.want {
			t.Errorf("%s: exit code %d, want %d: %q", tt.name, o.code, tt.want, o.bytes)
		}
	}
}

// Each release sends its policies in a form of its own: up to 0.140 the command is in codex's sandbox
// program, and 0.145 does not say that .git may be missing.
func TestCodexPoliciesOfReleases(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	dir := t.TempDir()
	at := func(path, access string) codexArgs {
		return codexArgs{"path": codexArgs{"type": "path", "path": path}, "access": access}
	}
	of := func(kind, access, below string) codexArgs {
		return codexArgs{"path": codexArgs{"type": "special", "value": codexArgs{"kind": kind, "subpath": below}}, "access": access}
	}
	profile := func(entries ...codexArgs) codexArgs {
		return codexArgs{"type": "managed", "network": "restricted", "file_system": codexArgs{"type": "restricted", "entries": entries}}
	}
	text := func(v any) string {
		raw, err := json.Marshal(v)
		must(t, err)
		return string(raw)
	}
	script := "echo x >here && cat here && ! echo x >/home/user/there"
	command := []string{"--", "/bin/sh", "-c", script}
	program := []string{"/on/the/client/codex", "--sandbox-policy-cwd", dir, "--command-cwd", dir}
	root := of("root", "read", "")
	for name, fields := range map[string][]any{
		"0.118": {"arg0", "codex-linux-sandbox", "argv", slices.Concat(program, []string{
			"--sandbox-policy", "{}", "--network-sandbox-policy", `"restricted"`, "--file-system-sandbox-policy",
			text(codexArgs{"kind": "restricted", "entries": []codexArgs{root, of("current_working_directory", "write", ""), at("/on/the/client/memories", "write"), at(dir+"/.codex", "read")}}),
		}, command)},
		"0.140": {"arg0", "codex-linux-sandbox", "argv", slices.Concat(program, []string{
			"--permission-profile", text(profile(root, at(dir, "write"), at(dir+"/.git", "read"), at(dir+"/.agents", "read"))),
		}, command)},
		"0.145": {"sandbox", codexArgs{"cwd": "file://" + dir, "workspaceRoots": []string{"file://" + dir}, "permissions": profile(root, of("project_roots", "write", ""), of("project_roots", "read", ".git"))}},
	} {
		m := c.ask("process/start", startArgs(name, script, append([]any{"cwd", dir}, fields...)...))
		if !landlock(t) {
			if m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("%s: %s %v, want a refusal", name, m.Result, m.Error)
			}
			continue
		}
		if m.Error != nil {
			t.Errorf("%s: %v", name, m.Error)
			continue
		}
		if o := c.closed(name); o.code != 0 || string(o.bytes["stdout"]) != "x\n" {
			t.Errorf("%s: exit code %d: %q", name, o.code, o.bytes)
		}
	}
	c.refused(-32602, "process/start", startArgs("unknown", "", "arg0", "codex-linux-sandbox", "argv", slices.Concat(program, []string{"--permission-profile", "{}", "--unknown", "x", "--", "true"})))
}

// landlock reports whether the kernel of sandboxes can confine processes.
func landlock(t *testing.T) bool {
	const least = 3 // version with all rights that a policy needs
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && v >= least && rig.Driver(t) != "gvisor"
}

// streams,
// input, and ends.
func TestCodexStreams(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	c.start("pipes", "test -t 1 && echo tty; echo out; echo err >&2; cat; exit 3")
	o := c.closed("pipes")
	if string(o.bytes["stdout"]) != "out\n" || string(o.bytes["stderr"]) != "err\n" || o.bytes["pty"] != nil {
		t.Errorf("streams: %q", o.bytes)
	}
	if o.code != 3 || o.exits != 1 || o.exited < o.lastOut || o.closed < o.exited || !o.dense {
		t.Errorf("%+v", o)
	}
	c.start("terminal", "test -t 0 && test -t 1 && echo tty; read l; echo got:$l", "tty", true)
	c.prints("terminal", "pty", "tty")
	var written codexArgs
	c.call("process/write", codexArgs{"processId": "terminal", "chunk": base64Of("hello\n")}, &written)
	if written["accepted"] != true {
		t.Errorf("write: %v", written)
	}
	if o = c.closed("terminal"); !strings.Contains(string(o.bytes["pty"]), "got:hello") || len(o.bytes) != 1 || o.code != 0 {
		t.Errorf("terminal: %q %d", o.bytes, o.code)
	}

	c.start("pipe", "sleep 300")
	for _, tt := range []struct{ id, status string }{{"unknown", "unknownProcess"}, {"pipe", "stdinClosed"}} {
		if m := c.ask("process/write", codexArgs{"processId": tt.id, "chunk": base64Of("x")}); m.Error == nil {
			t.Errorf("a write to %s without writeId: %s", tt.id, m.Result)
		}
		var got codexArgs
		c.call("process/write", codexArgs{"processId": tt.id, "chunk": base64Of("x"), "writeId": "1"}, &got)
		if got["status"] != tt.status {
			t.Errorf("a write to %s: %v", tt.id, got)
		}
	}
	c.refused(-32602, "process/write", codexArgs{"processId": "pipe", "chunk": "%"})

	var state struct {
		Exited   bool `json:"exited"`
		ExitCode *int `json:"exitCode"`
	}
	c.call("process/read", codexArgs{"processId": "pipe"}, &state)
	if state.Exited || state.ExitCode != nil {
		t.Errorf("before the end: %+v", state)
	}
	var ended codexArgs
	if c.call("process/terminate", codexArgs{"processId": "pipe"}, &ended); ended["running"] != true {
		t.Errorf("terminate: %v", ended)
	}
	c.closed("pipe")
	for _, id := range []string{"pipe", "unknown"} {
		if c.call("process/terminate", codexArgs{"processId": id}, &ended); ended["running"] != false {
			t.Errorf("terminate %s again: %v", id, ended)
		}
	}
	if c.call("process/read", codexArgs{"processId": "pipe"}, &state); !state.Exited || state.ExitCode == nil {
		t.Errorf("after the end: %+v", state)
	}
}

// codexPage is the answer of process/read.
type codexPage struct {
	Chunks []struct {
		Seq   uint64 `json:"seq"`
		Chunk []byte `json:"chunk"`
	} `json:"chunks"`
	NextSeq uint64 `json:"nextSeq"`
	Exited  bool   `json:"exited"`
	Closed  bool   `json:"closed"`
}

// X-031 (without a cap), X-041: reads return all of the
// output, binary.
func TestCodexReads(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	const size = 3 << 20
	c.start("p", fmt.Sprintf("head -c %d /dev/urandom | tee data; sha256sum <data >&2", size), "cwd", t.TempDir())
	o := c.closed("p")
	sum := fmt.Sprintf("%x", sha256.Sum256(o.bytes["stdout"]))
	if len(o.bytes["stdout"]) != size || !strings.HasPrefix(string(o.bytes["stderr"]), sum) {
		t.Fatalf("%d bytes, sum %s, stderr %s", len(o.bytes["stdout"]), sum, o.bytes["stderr"])
	}
	var all []byte
	after, pages := uint64(0), 0
	for {
		var page codexPage
		c.call("process/read", codexArgs{"processId": "p", "afterSeq": after, "maxBytes": 64 << 10, "waitMs": 0}, &page)
		for _, chunk := range page.Chunks {
			if chunk.Seq != after+1 {
				t.Fatalf("seq %d after %d", chunk.Seq, after)
			}
			after = chunk.Seq
			all = append(all, chunk.Chunk...)
		}
		if pages++; page.NextSeq <= after || pages > 1000 {
			t.Fatalf("page %d: nextSeq %d after %d", pages, page.NextSeq, after)
		}
		if page.Closed {
			break
		}
	}
	if !bytes.Contains(all, o.bytes["stdout"][:1000]) || len(all) != size+len(o.bytes["stderr"]) {
		t.Errorf("%d bytes in %d pages", len(all), pages)
	}
	// Split in the middle of a rune, in pieces.
	c.start("rune", `printf '\303'; sleep 0.1; printf '\251\377\000x'`)
	if got := c.closed("rune").bytes["stdout"]; string(got) != "\xc3\xa9\xff\x00x" {
		t.Errorf("%q", got)
	}
	// A read waits for output or the end, and answers at its deadline.
	c.start("late", "read l; echo $l", "tty", true)
	began := time.Now()
	var page codexPage
	c.call("process/read", codexArgs{"processId": "late", "waitMs": 200}, &page)
	if waited := time.Since(began); waited < 200*time.Millisecond || len(page.Chunks) > 0 {
		t.Errorf("%v, %+v", waited, page)
	}
	c.send(`{"id":"long","method":"process/read","params":{"processId":"late","afterSeq":0,"waitMs":30000}}`)
	c.call("process/write", codexArgs{"processId": "late", "chunk": base64Of("now\n")}, nil)
	if m := c.answer(`"long"`); m.Error != nil || json.Unmarshal(m.Result, &page) != nil || len(page.Chunks) == 0 && !page.Exited {
		t.Errorf("%v %s", m.Error, m.Result)
	}
	c.closed("late")
}

// output that a child writes long after its parent's exit is between exited and
// closed, which comes once no process has the pipes. A terminal closes after a silence.
func TestCodexLateOutput(t *testing.T) {
	t.Parallel()
	c, box := newCodex(t)
	gate := "/tmp/codex-late-" + box.ID
	c.start("late", "(while [ ! -e "+gate+" ]; do sleep 0.05; done; echo late; exec setsid sh -c 'echo later >&2') & echo early; exit 3")
	c.await("exit", func() bool { return c.output("late").exits == 1 })
	c.start("silence", "sleep 3") // longer than the silence that ends other records
	c.closed("silence")
	var page codexPage
	if c.call("process/read", codexArgs{"processId": "late", "afterSeq": 0}, &page); !page.Exited || page.Closed {
		t.Errorf("before its children's end: exited %v, closed %v", page.Exited, page.Closed)
	}
	c.file("createDirectory", "path", gate)
	o := c.closed("late")
	if string(o.bytes["stdout"]) != "early\nlate\n" || string(o.bytes["stderr"]) != "later\n" || !o.dense || o.exits != 1 || o.code != 3 || o.lastOut <= o.exited || o.closed <= o.lastOut {
		t.Errorf("%+v", o)
	}
	c.start("tty", "trap '' HUP; sleep 300 & exit 4", "tty", true)
	if o := c.closed("tty"); o.exits != 1 || o.code != 4 {
		t.Errorf("a terminal: %+v", o)
	}
	// terminate kills the children that hold the pipes, since they are in the process's group. A child that
	// left the group survives, but its output no longer counts.
	for name, child := range map[string]string{"held": "sleep 300", "daemon": "setsid sleep 300"} {
		c.start(name, child+" & echo early")
		c.await("exit", func() bool { return c.output(name).exits == 1 })
		var ended codexArgs
		if c.call("process/terminate", codexArgs{"processId": name}, &ended); ended["running"] != false {
			t.Errorf("%s: %v", name, ended)
		}
		if o := c.closed(name); o.code != 0 || string(o.bytes["stdout"]) != "early\n" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// the session of the protocol's own example.
func TestCodexExampleSession(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	c := dialCodex(t, a, "/codex/"+box.ID)
	c.begin("")
	script := `printf 'ready\n'; while IFS= read -r line; do printf 'echo:%s\n' "$line"; done`
	c.call("process/start", codexArgs{
		"processId": "proc-1", "argv": []string{"bash", "-lc", script}, "cwd": "/tmp",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": true, "arg0": nil,
	}, nil)
	c.prints("proc-1", "pty", "ready")
	c.call("process/write", codexArgs{"processId": "proc-1", "chunk": base64Of("hello\n")}, nil)
	c.prints("proc-1", "pty", "echo:hello")
	var ended codexArgs
	if c.call("process/terminate", codexArgs{"processId": "proc-1"}, &ended); ended["running"] != true {
		t.Errorf("%v", ended)
	}
	if o := c.closed("proc-1"); o.exits != 1 || !o.dense {
		t.Errorf("%+v", o)
	}
}

// a lost connection ends the processes if its policy says so, and otherwise the
// session can be resumed, with all output, until its time is over.
func TestCodexLostConnections(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	alive := func(mark string) bool {
		ans := a.Do(t, http.MethodGet, "/v1/processes?sandbox="+box.ID+"&state=running", nil)
		return strings.Contains(string(ans.Body), mark)
	}
	gone := dialCodex(t, a, "/codex/"+box.ID+"?on_disconnect=terminate")
	session := gone.begin("")
	gone.start("p", "sleep 4711")
	if !alive("4711") {
		t.Fatal("the process is not listed")
	}
	gone.ws.Close()
	if !rig.Poll(codexTimeout, func() bool { return !alive("4711") }) {
		t.Error("the process outlives its connection")
	}
	c := dialCodex(t, a, "/codex/"+box.ID)
	c.refused(-32600, "initialize", codexArgs{"clientName": "e2e", "resumeSessionId": session})

	c = dialCodex(t, a, "/codex/"+box.ID)
	session = c.begin("")
	c.start("q", "echo one; read l; echo $l; read l", "tty", true)
	c.prints("q", "pty", "one")
	second := dialCodex(t, a, "/codex/"+box.ID)
	second.refused(-32010, "initialize", codexArgs{"clientName": "e2e", "resumeSessionId": session}) // it has a client
	c.ws.Close()
	resumed := false
	if !rig.Poll(codexTimeout, func() bool {
		m := second.ask("initialize", codexArgs{"clientName": "e2e", "resumeSessionId": session})
		resumed = m.Error == nil
		return resumed || m.Error.Code != -32010
	}) || !resumed {
		t.Fatal("the session cannot be resumed")
	}
	second.send(`{"method":"initialized"}`)
	var page codexPage
	second.call("process/read", codexArgs{"processId": "q", "afterSeq": 0}, &page)
	second.call("process/write", codexArgs{"processId": "q", "chunk": base64Of("two\n"), "writeId": "1"}, nil)
	second.call("process/write", codexArgs{"processId": "q", "chunk": base64Of("two\n"), "writeId": "1"}, nil) // once
	second.prints("q", "pty", "two")
	second.call("process/terminate", codexArgs{"processId": "q"}, nil)
	second.await("end of q", func() bool { return second.output("q").closed > 0 })

	brief := dialCodex(t, a, "/codex/"+box.ID+"?detach_timeout=1")
	detached := brief.begin("")
	brief.start("r", "sleep 4713")
	brief.ws.Close()
	if !rig.Poll(codexTimeout, func() bool { return !alive("4713") }) {
		t.Error("the process outlives its session, which waited for 1 s")
	}
	dialCodex(t, a, "/codex/"+box.ID).refused(-32600, "initialize", codexArgs{"clientName": "e2e", "resumeSessionId": detached})

	other := a.Create(t)
	stranger := dialCodex(t, a, "/codex/"+other.ID)
	stranger.refused(-32600, "initialize", codexArgs{"clientName": "e2e", "resumeSessionId": session})
}

// A session may have a sandbox of its own, which ends with it.
func TestCodexNewSandbox(t *testing.T) {
	t.Parallel()
	a := api(t)
	c := dialCodex(t, a, "/codex/new?timeout=120&on_disconnect=terminate")
	c.begin("")
	c.start("p", "echo $E2B_SANDBOX_ID", "envPolicy", codexArgs{
		"inherit": "all", "ignoreDefaultExcludes": true, "exclude": []string{}, "set": codexArgs{}, "includeOnly": []string{},
	})
	id := strings.TrimSpace(string(c.closed("p").bytes["stdout"]))
	path := "/v1/store/sandboxes/" + id
	if ans := a.Do(t, http.MethodGet, path, nil); id == "" || !strings.Contains(string(ans.Body), `"state":"running"`) {
		t.Fatalf("sandbox %q: %v", id, ans)
	}
	c.ws.Close()
	if !rig.Poll(codexTimeout, func() bool {
		return strings.Contains(string(a.Do(t, http.MethodGet, path, nil).Body), `"state":"ended"`)
	}) {
		t.Error("the sandbox outlives its session")
	}
}
