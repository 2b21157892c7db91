package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// agentHosts is a topology whose template standard has programs of agents: that of deictic runs its task
// as a script, those of the others print their arguments.
func agentHosts(t *testing.T, top rig.Topology, commands ...string) *rig.Split {
	t.Helper()
	if d := rig.Driver(t); d == "direct" || d == "jail" || !rootInside(t) {
		t.Skip("the driver makes nothing from templates, or only as its own user")
	}
	s := newTopology(t, top)
	const script = "#!/bin/sh\n"
	commands = append([]string{
		`printf '` + script + `eval "$TASK"\n' >/usr/local/bin/agent`,
		`for x in claude codex; do printf '` + script + `printf "%%s\n" '$x' "$@"; env | grep -e _API_KEY -e IS_SANDBOX | sort\n' >/usr/local/bin/$x; done`,
		`chmod 755 /usr/local/bin/agent /usr/local/bin/claude /usr/local/bin/codex`,
	}, commands...)
	b := startBuildAs(t, s.APIs[0], "root", "standard", commands...)
	if done := awaitBuild(t, s.APIs[0], b, "the build", func(st *buildState) bool { return st.Status == "ready" || st.Status == "error" }); done.Status != "ready" {
		t.Fatalf("%+v", done)
	}
	return s
}

// eventually is rig.Poll for conditions that need requests: a tenant's are limited.
func eventually(timeout time.Duration, yes func() bool) bool {
	return rig.Poll(timeout, func() bool {
		if yes() {
			return true
		}
		<-time.After(200 * time.Millisecond)
		return false
	})
}

// agentVM is a sandbox with an agent.
type agentVM struct {
	api *rig.API
	ID  string `json:"vm_id"`
}

// agentState is what a client polls.
type agentState struct {
	State  string
	Status string `json:"agent_status"`
	Exit   *int   `json:"agent_exit_code"`
	Error  string `json:"agent_error"`
}

func (s agentState) String() string {
	code := "none"
	if s.Exit != nil {
		code = fmt.Sprint(*s.Exit)
	}
	return strings.Join([]string{s.State, s.Status, code, s.Error}, " ")
}

func bearer(a *rig.API) []string { return []string{"Authorization", "Bearer " + a.Key} }

// newAgent creates a sandbox with an agent; fields replace those of the request.
func newAgent(t *testing.T, a *rig.API, fields map[string]any, headers ...string) agentVM {
	t.Helper()
	req := map[string]any{"template": "standard", "agent": "deictic", "llm_key": "canary", "model": "m"}
	maps.Copy(req, fields)
	vm := agentVM{api: a}
	a.Want(t, 201, "POST", "/v1/sandboxes", req, append(bearer(a), headers...)...).Decode(t, &vm)
	return vm
}

func (vm agentVM) state(t *testing.T) (s agentState) {
	t.Helper()
	vm.api.Want(t, 200, "GET", "/v1/sandboxes/"+vm.ID, nil, bearer(vm.api)...).Decode(t, &s)
	return s
}

// ended polls as a client does.
func (vm agentVM) ended(t *testing.T) (s agentState) {
	t.Helper()
	if !eventually(60*time.Second, func() bool { s = vm.state(t); return s.Status != "running" }) {
		t.Fatalf("the agent runs: %s\n%s", s, vm.logs(t))
	}
	return s
}

func (vm agentVM) logs(t *testing.T) string {
	t.Helper()
	var l struct{ Content string }
	vm.api.Want(t, 200, "GET", "/v1/sandboxes/"+vm.ID+"/logs", nil, bearer(vm.api)...).Decode(t, &l)
	return l.Content
}

// exec returns the output of a command.
func (vm agentVM) exec(t *testing.T, command string) string {
	t.Helper()
	var out struct{ Output string }
	vm.api.Want(t, 200, "POST", "/v1/sandboxes/"+vm.ID+"/exec", map[string]any{"command": command}, bearer(vm.api)...).Decode(t, &out)
	return out.Output
}

// leaves checks what an agent left in its sandbox.
func (vm agentVM) leaves(t *testing.T, what, status string, code int, result string) {
	t.Helper()
	want := fmt.Sprintf("running %s %d ", status, code)
	if got := vm.ended(t).String(); got != want {
		t.Errorf("%s: %q, want %q\n%s", what, got, want, vm.logs(t))
	}
	if got := vm.exec(t, "cat /tmp/result.txt"); got != result {
		t.Errorf("%s: the result is %q, want %q", what, got, result)
	}
	if got := vm.exec(t, "cat /tmp/agent.exit"); got != fmt.Sprintf("%d\n", code) {
		t.Errorf("%s: the exit code is %q, want %d", what, got, code)
	}
}

// E-022, E-029, E-081 to E-084, E-119, E-143, E-230 to E-237: one-shot agents.
func TestE2AAgents(t *testing.T) {
	t.Parallel()
	s := agentHosts(t, rig.Topology{Gateways: 2})
	a := s.APIs[0]
	run := func(name string, do func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t)
		})
	}
	task := func(t *testing.T, script string) agentVM {
		t.Helper()
		return newAgent(t, a, map[string]any{"task": script})
	}
	run("results", func(t *testing.T) {
		vm := newAgent(t, a, map[string]any{
			"task": "printf out; printf err >&2; exit 3", "session_id": "ses", "env_vars": map[string]string{"CUA_ENABLED": "true"}, "agent_env": map[string]string{"MINE": "x"},
		})
		vm.leaves(t, "exit 3", "failed", 3, "out")
		var env map[string]string
		must(t, json.Unmarshal([]byte(vm.exec(t, "cat /app/config/env.json")), &env))
		for name, want := range map[string]string{
			"AGENT_TYPE": "deictic", "TASK": "printf out; printf err >&2; exit 3", "LLM_KEY": "canary", "LLM_MODEL": "m", "SESSION_ID": "ses", "CUA_ENABLED": "true", "MINE": "x",
			"APP_JSON": `{"name":"e2a","capability_sets":[{"name":"default","agents":[{"name":"primary","capability_name":"general","capability_description":"general-purpose worker","tools":["read_file","write_file","list_directory","shell_exec"]}]}]}`,
		} {
			if env[name] != want {
				t.Errorf("env.json: %s=%q, want %q", name, env[name], want)
			}
		}
		check := func() {
			t.Helper()
			if got := vm.logs(t); got != "outerr" && got != "errout" {
				t.Errorf("the logs are %q", got)
			}
		}
		check()
		a.Want(t, 200, "DELETE", "/v1/sandboxes/"+vm.ID, nil, bearer(a)...)
		check()
		if got := vm.state(t); got.String() != "destroyed  none " {
			t.Errorf("after the end: %s", got)
		}
		task(t, "echo $LLM_MODEL").leaves(t, "exit 0", "completed", 0, "m\n")
	})
	// docs/agents.md, word for word.
	run("docs", func(t *testing.T) {
		raw, err := os.ReadFile("../docs/agents.md")
		must(t, err)
		r := &docsReader{string(raw), []string{"API=" + a.URL, "KEY=" + a.Key, "LLM_KEY=canary", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
		vm := agentVM{api: a}
		must(t, json.Unmarshal([]byte(r.follow(t, "A task", 0)[0]), &vm))
		vm.ended(t)
		out := r.follow(t, "A task", 1, "VM="+vm.ID)
		if !strings.HasSuffix(out[0], `"agent_exit_code":0,"agent_status":"completed"}`) || !strings.Contains(out[1], `summarize README.md\n`) {
			t.Errorf("%q", out)
		}
	})
	run("killed", func(t *testing.T) {
		task(t, "echo before; kill -9 $$").leaves(t, "kill -9 of the program", "failed", 137, "before\n")
		vm := task(t, "echo before; exec sleep 600")
		if !eventually(20*time.Second, func() bool { return vm.logs(t) == "before\n" }) {
			t.Fatal(vm.logs(t))
		}
		vm.exec(t, `kill -9 -- -$(pgrep -f 'e2a-runtime agent$')`) // its group
		if got := vm.ended(t); got.Status != "failed" || got.Exit == nil || *got.Exit != 137 {
			t.Errorf("kill -9 of the recorded process: %s", got)
		}
		if !eventually(20*time.Second, func() bool { return vm.exec(t, "cat /tmp/agent.exit") == "137\n" }) {
			t.Errorf("kill -9 of the recorded process: %q", vm.exec(t, "cat /tmp/agent.exit; ps -ef"))
		}
		if got := vm.exec(t, "cat /tmp/result.txt; pgrep -f 'sleep 600'"); got != "before\n" {
			t.Errorf("after kill -9: %q", got)
		}
	})
	run("cancel", func(t *testing.T) {
		vm := task(t, "trap 'echo wrapped; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
		if !eventually(20*time.Second, func() bool { return vm.logs(t) == "ready\n" }) {
			t.Fatal(vm.logs(t))
		}
		got := a.Want(t, 200, "POST", "/v1/sandboxes/"+vm.ID+"/cancel", `{"reason":"timeout"}`, bearer(a)...)
		if !strings.Contains(string(got.Body), `"cancelled":false`) {
			t.Errorf("cancel: %s", got)
		}
		vm.leaves(t, "cancel", "completed", 0, "ready\nwrapped\n")
	})
	run("arguments", func(t *testing.T) {
		vm := newAgent(t, a, map[string]any{"agent": "claude-code", "model": "claude-x", "task": "-say hi"})
		vm.leaves(t, "claude-code", "completed", 0, "claude\n--print\n--dangerously-skip-permissions\n--model\nclaude-x\n--\n-say hi\nANTHROPIC_API_KEY=canary\nIS_SANDBOX=1\nLLM_API_KEY=canary\n")
		vm = newAgent(t, a, map[string]any{"agent": "codex", "model": "o3", "task": "hi", "session_id": "s1"})
		vm.leaves(t, "codex", "completed", 0, "codex\nexec\n--skip-git-repo-check\n--dangerously-bypass-approvals-and-sandbox\n--model\no3\nresume\ns1\n--\nhi\nCODEX_API_KEY=canary\nLLM_API_KEY=canary\nOPENAI_API_KEY=canary\n")
		vm = newAgent(t, a, map[string]any{"task": "x", "agent_cmd": "/home/user/missing"})
		vm.leaves(t, "a program that does not exist", "failed", 127, "")
	})
	run("waits", func(t *testing.T) {
		vm := newAgent(t, a, map[string]any{"idle_timeout_seconds": 2})
		if got := vm.state(t).String(); got != "running running none " {
			t.Errorf("without a task: %s", got)
		}
		if got := vm.exec(t, "ls /tmp/agent.exit 2>/dev/null"); got != "" {
			t.Errorf("without a task: %q", got)
		}
		if !eventually(60*time.Second, func() bool { return vm.state(t).State == "destroyed" }) {
			t.Errorf("the waiting agent keeps its sandbox: %s", vm.state(t))
		}
	})
	run("idle", func(t *testing.T) {
		// Without the agent, the sandbox would end after 8 seconds at most.
		vm := newAgent(t, a, map[string]any{"idle_timeout_seconds": 1, "task": "sleep 10; echo done"})
		if got := vm.ended(t).String(); got != "running completed 0 " {
			t.Errorf("a task longer than the idle timeout: %s", got)
		}
		if !eventually(60*time.Second, func() bool { return vm.state(t).State == "destroyed" }) {
			t.Errorf("the agent that ended keeps its sandbox: %s", vm.state(t))
		}
		if got := vm.logs(t); got != "done\n" {
			t.Errorf("the logs of the sandbox that ended: %q", got)
		}
	})
	run("idempotency", func(t *testing.T) {
		fields := map[string]any{"task": "echo x >>/tmp/count; sleep 600"}
		first := newAgent(t, a, fields, "Idempotency-Key", "one")
		second := newAgent(t, s.APIs[1], fields, "Idempotency-Key", "one")
		if first.ID != second.ID {
			t.Fatalf("%s and %s", first.ID, second.ID)
		}
		if !eventually(20*time.Second, func() bool { return first.exec(t, "cat /tmp/count") == "x\n" }) {
			t.Errorf("the agent was started more than once: %q", first.exec(t, "cat /tmp/count"))
		}
	})
}

// kill -9 of a gateway and of hostd, again and again, while agents run: every agent runs once, and its
// result is whole.
func TestE2AAgentsOutliveServices(t *testing.T) {
	t.Parallel()
	s := agentHosts(t, rig.Topology{Gateways: 2})
	const lines = 200
	script := fmt.Sprintf("echo x >>/tmp/count; for i in $(seq %d); do echo line $i; sleep 0.05; done; exit 7", lines)
	var vms []agentVM
	for range 3 {
		vms = append(vms, newAgent(t, s.APIs[1], map[string]any{"task": script, "idle_timeout_seconds": 600}))
	}
	for i := range 3 {
		for _, name := range []string{"gateway-1", "host-1"} {
			want := fmt.Sprintf("line %d\n", 10*(2*i+1))
			if !eventually(30*time.Second, func() bool { return strings.Contains(vms[0].logs(t), want) }) {
				t.Fatalf("%s: the agent does not go on: %q", name, vms[0].logs(t))
			}
			s.Program(name).Kill9()
			must(t, s.RestartProgram(name))
		}
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	must(t, s.Settled(1))
	for _, vm := range vms {
		vm.leaves(t, "after kill -9", "failed", 7, want.String())
		if got := vm.exec(t, "cat /tmp/count"); got != "x\n" {
			t.Errorf("the agent ran more than once: %q", got)
		}
		var l struct{ Content string }
		s.APIs[0].Want(t, http.StatusOK, "GET", "/v1/sandboxes/"+vm.ID+"/logs?lines=1000", nil, bearer(s.APIs[0])...).Decode(t, &l)
		if l.Content != want.String() {
			t.Errorf("the logs are not whole: %d bytes", len(l.Content))
		}
	}
}
