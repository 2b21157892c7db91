package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// codexDocs is docs/codex.md.
func codexDocs(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../docs/codex.md")
	must(t, err)
	return string(raw)
}

// codexReader is a reader of docs/codex.md: a home directory, and a PATH with millrace and codex.
type codexReader struct {
	home, bin string
	env       []string
}

// newCodexReader returns a reader with a trusted directory and a release of codex that asks a model.
func newCodexReader(t *testing.T, version, model string) *codexReader {
	t.Helper()
	r := &codexReader{home: t.TempDir(), bin: t.TempDir()}
	must(t, os.Mkdir(filepath.Join(r.home, ".codex"), 0o700))
	writeCodexConfig(t, filepath.Join(r.home, ".codex"), r.home, model)
	r.program(t, "codex", fmt.Sprintf("exec node %s \"$@\"", rig.Codex(t, version)))
	r.program(t, "millrace", fmt.Sprintf("case $1 in exec-server) set -- \"$@\" --driver %s ;; esac\nexec %s \"$@\"", rig.Driver(t), rig.Binary(t)))
	r.env = []string{"HOME=" + r.home, "PATH=" + r.bin + ":" + os.Getenv("PATH")}
	return r
}

func (r *codexReader) program(t *testing.T, name, script string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(r.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
}

// runs runs commands in one shell, and returns what they print.
func (r *codexReader) runs(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
	cmd.Dir, cmd.Env = r.home, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// The three steps of docs/codex.md, word for word, and how it says to see what ran. The release does not
// know auth_bearer_token.
func TestCodexDocs(t *testing.T) {
	t.Parallel()
	a := api(t)
	m := newCodexModel(t, runCommand("uname -a; echo in-$E2B_SANDBOX_ID"))
	r := newCodexReader(t, "0.145", m.URL)
	r.env = append(r.env, "MILLRACE_URL="+a.URL, "MILLRACE_API_KEY="+a.Key)
	var script []string
	for _, step := range regexp.MustCompile("(?m)^[123]\\. [^`]*`([^`]+)`").FindAllStringSubmatch(codexDocs(t), -1) {
		script = append(script, step[1])
	}
	look := regexp.MustCompile("`(millrace ps [^`]+)`").FindStringSubmatch(codexDocs(t))
	if len(script) != 3 || look == nil {
		t.Fatalf("steps %q, and %q", script, look)
	}
	out := r.runs(t, strings.Join(append(script, "echo sandbox=$SBX", look[1]), "\n"))
	box := regexp.MustCompile("(?m)^sandbox=(i.+)$").FindStringSubmatch(out)
	results := m.Results()
	if box == nil || len(results) != 1 || !strings.Contains(results[0], "in-"+box[1]) || !strings.Contains(results[0], "Linux") {
		t.Fatalf("results %q of\n%s", results, out)
	}
	if _, ran, _ := strings.Cut(out, box[0]); !strings.Contains(ran, "uname -a") {
		t.Errorf("%s does not list the command: %s", look[1], ran)
	}
}

// The configuration for a server that codex starts itself, word for word.
func TestCodexDocsWithoutServer(t *testing.T) {
	t.Parallel()
	onlyWithQuickDrivers(t)
	m := newCodexModel(t, runCommand("uname -a; echo in-$E2B_SANDBOX_ID"))
	r := newCodexReader(t, "0.169", m.URL)
	conf := regexp.MustCompile("(?s)```toml\n(.*?)```").FindStringSubmatch(codexDocs(t))
	if conf == nil {
		t.Fatal("no configuration")
	}
	must(t, os.WriteFile(filepath.Join(r.home, ".codex", "environments.toml"), []byte(conf[1]), 0o600))
	out := r.runs(t, "codex exec --dangerously-bypass-approvals-and-sandbox 'run uname -a'")
	if results := m.Results(); len(results) != 1 || !strings.Contains(results[0], "in-i") {
		t.Errorf("results %q of\n%s", results, out)
	}
}
