package e2e_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// codexRun is a run of the codex CLI.
type codexRun struct {
	cmd *exec.Cmd
	out *strings.Builder
	dir string // working directory, here and in the sandbox
}

// codexRunTimeout bounds a run of the CLI.
const codexRunTimeout = 90 * time.Second

// startCodex starts a released CLI whose commands run in a sandbox, as docs/codex.md says.
func startCodex(t *testing.T, version, model string, a *rig.API, sandbox string, flags ...string) *codexRun {
	t.Helper()
	launcher := rig.Codex(t, version)
	home, dir := t.TempDir(), t.TempDir()
	writeCodexConfig(t, home, dir, model)
	conf := exec.CommandContext(t.Context(), rig.Binary(t), "codex", "url", "--sandbox", sandbox)
	conf.Env = []string{"HOME=" + home, "MILLRACE_URL=" + a.URL, "MILLRACE_API_KEY=" + a.Key}
	toml, err := conf.Output()
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(filepath.Join(home, "environments.toml"), toml, 0o600))
	return runCodex(t, launcher, home, dir, flags...)
}

// writeCodexConfig writes a configuration of the CLI for a model.
func writeCodexConfig(t *testing.T, home, dir, model string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(home, "config.toml"), fmt.Appendf(nil, `model = "test"
model_provider = "mock"
[model_providers.mock]
name = "mock"
base_url = "%s/v1"
wire_api = "responses"
[projects."%s"]
trust_level = "trusted"
`, model, dir), 0o600))
}

// runCodex starts the CLI, without a sandbox of its own unless flags request one.
func runCodex(t *testing.T, launcher, home, dir string, flags ...string) *codexRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), codexRunTimeout)
	t.Cleanup(cancel)
	r := &codexRun{out: new(strings.Builder), dir: dir}
	if len(flags) == 0 {
		flags = []string{"--dangerously-bypass-approvals-and-sandbox"}
	}
	r.cmd = exec.CommandContext(ctx, "node", slices.Concat([]string{launcher, "exec", "--skip-git-repo-check", "-C", dir}, flags, []string{"do it"})...)
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CODEX_HOME=" + home}
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait returns what each step returned.
func (r *codexRun) wait(t *testing.T, m *codexModel) []string {
	t.Helper()
	err := r.cmd.Wait()
	results := m.Results()
	if err != nil || len(results) != len(m.steps) {
		t.Fatalf("the CLI: %v\n%s\nresults: %q", err, r.out, results)
	}
	return results
}

// runCommand is a step that runs a shell command.
func runCommand(script string, fields ...any) codexStep {
	args := map[string]any{"cmd": script, "yield_time_ms": 20_000, "max_output_tokens": 20_000}
	for i := 0; i+1 < len(fields); i += 2 {
		args[fmt.Sprint(fields[i])] = fields[i+1]
	}
	return codexStep{"exec_command", args}
}

// The released CLI runs its commands in a sandbox: pipes, terminals, patches and exit codes.
func TestCodexCLI(t *testing.T) {
	t.Parallel()
	a := api(t)
	for _, version := range []string{"0.140", "0.145", "0.169"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			box := a.Create(t, "secure", true)
			const lines = 20_000
			m := newCodexModel(t,
				runCommand("printf out; printf err >&2; exit 5"),
				runCommand(`printf "name: "; read name; echo "hello $name"`, "tty", true, "yield_time_ms", 1000),
				codexStep{"write_stdin", map[string]any{"session_id": 0, "chars": "millrace\n", "yield_time_ms": 10_000}},
				runCommand("apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: note.txt\n+patched\n*** End Patch\nEOF\n"),
				runCommand(fmt.Sprintf("cat note.txt; seq 1 %d | tee numbers | sha256sum; cat numbers >/dev/null; echo $E2B_SANDBOX_ID", lines)),
				runCommand(fmt.Sprintf("seq 1 %d", lines), "max_output_tokens", 100_000),
			)
			r := startCodex(t, version, m.URL, a, box.ID)
			results := r.wait(t, m)
			results[2] = results[1] + results[2] // the prompt may be in either of them
			var numbers strings.Builder
			for i := range lines {
				fmt.Fprintln(&numbers, i+1)
			}
			sum := fmt.Sprintf("%x", sha256.Sum256([]byte(numbers.String())))
			for i, wants := range [][]string{
				{"out", "err", "code 5"}, {"session ID"}, {"name: ", "hello millrace", "code 0"}, {"note.txt"}, {"patched\n", sum}, {"code 0", "1\n2\n3\n", "19999\n20000\n"},
			} {
				for _, want := range wants {
					if !strings.Contains(results[i], want) {
						t.Errorf("step %d: no %q in %.2000q", i, want, results[i])
					}
				}
			}
			// The commands ran in the sandbox, and nowhere else.
			ans := a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes?sandbox="+box.ID, nil)
			for _, want := range []string{"exit 5", "read name", "sha256sum"} {
				if !strings.Contains(string(ans.Body), want) {
					t.Errorf("no process with %q in the sandbox: %s", want, ans.Body)
				}
			}
			if all, err := os.ReadDir(r.dir); rig.Driver(t) != "direct" && (err != nil || len(all) > 0) {
				t.Errorf("files on this machine: %v %v", all, err)
			}
		})
	}
}

// The released CLI asks for a sandbox for each command, which is enforced.
func TestCodexCLISandbox(t *testing.T) {
	t.Parallel()
	if !landlock(t) {
		t.Skip("no landlock")
	}
	a := api(t)
	for _, version := range []string{"0.140", "0.145"} { // their forms of a policy differ
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			box := a.Create(t, "secure", true)
			m := newCodexModel(t, runCommand("echo here >new; cat new; echo there >/home/user/there || echo refused; echo $E2B_SANDBOX_ID"))
			r := startCodex(t, version, m.URL, a, box.ID, "--sandbox", "workspace-write")
			if got := r.wait(t, m)[0]; !strings.Contains(got, "here\n") || !strings.Contains(got, "refused\n") || !strings.Contains(got, box.ID) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Services die while commands of the released CLI run, which gets every byte and each exit code.
// The gateway answers on the same address afterwards.
func TestCodexCLIDeaths(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{GatewayArgs: []string{"--codex-retain", "1"}})
	a := s.APIs[0]
	box := a.Create(t, "secure", true)
	checkCodexRetain(t, a, box)
	crash := func(name string) func() error {
		return func() error {
			_, err := s.Crash(name)
			return err
		}
	}
	faults := []struct {
		name string
		do   func() error
	}{
		{"the gateway is killed", crash("gateway-1")},
		{"hostd is killed", crash("host-1")},
		{"NATS is killed", crash("nats-1")},
		{"the gateway gets SIGTERM", func() error {
			return errors.Join(s.Program("gateway-1").Term(), s.RestartProgram("gateway-1"))
		}},
	}
	const lines = 60
	var steps []codexStep
	for i := range faults {
		script := fmt.Sprintf("for i in $(seq 1 %d); do echo step-%d-line-$i; sleep 0.05; done; exit %d", lines, i, 7+i)
		steps = append(steps, runCommand(script, "yield_time_ms", 30_000))
	}
	m := newCodexModel(t, steps...)
	proxy, through := newCodexProxy(t, a)
	r := startCodex(t, "0.169", m.URL, through, box.ID)
	for i, f := range faults {
		// A start whose answer is lost cannot be resumed: the client kills the process.
		if !rig.Poll(codexTimeout, func() bool { return len(m.Results()) == i }) {
			t.Fatalf("%s: step %d does not begin\n%s", f.name, i, r.out)
		}
		before := proxy.count("process/output")
		if !rig.Poll(codexTimeout, func() bool { return proxy.count("process/output") >= before+3 }) {
			t.Fatalf("%s: the command prints nothing\n%s", f.name, r.out)
		}
		must(t, f.do())
	}
	for i, result := range r.wait(t, m) {
		for k := range lines {
			if n := strings.Count(result, fmt.Sprintf("step-%d-line-%d\n", i, k+1)); n != 1 {
				t.Errorf("%s: line %d: %d times", faults[i].name, k+1, n)
			}
		}
		if !strings.Contains(result, fmt.Sprintf("code %d", 7+i)) {
			t.Errorf("%s: the result has no exit code: %.2000q", faults[i].name, result)
		}
	}
}

// checkCodexRetain reads more than an operator lets a client read: the newest output is
// there, and the oldest is not.
func checkCodexRetain(t *testing.T, a *rig.API, box rig.Sandbox) {
	t.Helper()
	const limit = 1 << 20
	c := newCodexClient(t, "/codex/"+box.ID, a)
	must(t, c.connect(never))
	defer c.drop()
	p := c.start("p", "head -c 3000000 /dev/zero; echo newest")
	c.untilClosed(never)
	if n := len(p.out["stdout"]); n != 3_000_000+len("newest\n") {
		t.Errorf("%d bytes were pushed", n)
	}
	var page codexRecovery
	must(t, c.call("process/read", codexArgs{"processId": "p", "afterSeq": 0}, &page))
	size, last := 0, ""
	for _, chunk := range page.Chunks {
		size += len(chunk.Chunk)
		last = string(chunk.Chunk)
	}
	if size > limit || size < limit/2 || page.Chunks[0].Seq <= 1 || !strings.HasSuffix(last, "newest\n") || !page.Closed {
		t.Errorf("%d bytes from seq %d, closed %v, the end is %.20q", size, page.Chunks[0].Seq, page.Closed, last[max(0, len(last)-20):])
	}
}
