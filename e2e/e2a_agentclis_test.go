package e2e_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// Released versions of claude and codex, unmodified, run a task: they call a model over TLS, whose
// authority the sandbox trusts, through the sandbox's egress, and run a command that the model requests.
func TestE2AAgentCLIs(t *testing.T) {
	if os.Getenv(recipesVariable) == "" { // the programs have 700 MB together
		t.Skip("set " + recipesVariable + " to run it")
	}
	t.Parallel()
	programs := http.NewServeMux()
	for name, version := range map[string]string{"claude": "2.1.332", "codex": "0.169"} {
		file := rig.CLIProgram(t, name, version)
		programs.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	}
	models := http.NewServeMux()
	const proof = "echo proof-$((40+2)) >/tmp/proof"
	claude := &claudeModel{command: proof, text: "claude is done"}
	codex := &codexModel{steps: []codexStep{runCommand(proof)}}
	models.Handle("/claude/", http.StripPrefix("/claude", claude))
	models.Handle("/codex/", http.StripPrefix("/codex", codex.routes()))
	files, model := httptest.NewServer(programs), httptest.NewUnstartedServer(models)
	t.Cleanup(files.Close)
	t.Cleanup(model.Close)
	auth, dir := newAuthority(t), t.TempDir()
	auth.issue("model", filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	must(t, err)
	model.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	model.StartTLS()
	ca, err := os.ReadFile(auth.file)
	must(t, err)
	_, port, _ := strings.Cut(strings.TrimPrefix(model.URL, "https://"), ":")
	_, filePort, _ := strings.Cut(strings.TrimPrefix(files.URL, "http://"), ":")

	dns := rig.DNS(t, map[string]string{"example.com": "127.0.0.1"})
	// A launcher fetches the program at its first use: a template with both would take minutes to store.
	get := func(name string) string {
		return `printf '#!/bin/sh\nset -e\nmkdir -p ~/bin\ncurl -fsS http://example.com:` + filePort + "/" + name + ` -o ~/bin/` + name +
			`\nchmod 755 ~/bin/` + name + `\nexec ~/bin/` + name + ` "$@"\n' >/usr/local/bin/` + name
	}
	s := agentHosts(t, rig.Topology{HostArgs: []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", dns}},
		get("claude"), get("codex"), "printf '%s' '"+string(ca)+"' >/etc/model-ca.pem && chmod 644 /etc/model-ca.pem")
	a := s.APIs[0]
	for _, tt := range []struct {
		agent, model, text string
		env                map[string]string
	}{
		{"claude-code", "claude-sonnet-4-5", "claude is done\n", map[string]string{
			"ANTHROPIC_BASE_URL": "https://example.com:" + port + "/claude", "NODE_EXTRA_CA_CERTS": "/etc/model-ca.pem",
		}},
		{"codex", "gpt-5", "done\n", map[string]string{
			"OPENAI_BASE_URL": "https://example.com:" + port + "/codex/v1", "SSL_CERT_FILE": "/etc/model-ca.pem",
		}},
	} {
		begin := time.Now()
		vm := newAgent(t, a, map[string]any{"agent": tt.agent, "model": tt.model, "task": "write the proof", "agent_env": tt.env})
		vm.leaves(t, tt.agent, "completed", 0, tt.text)
		if got := vm.exec(t, "cat /tmp/proof"); got != "proof-42\n" {
			t.Errorf("%s did not run the command: %q\n%s", tt.agent, got, vm.logs(t))
		}
		t.Logf("%s: %v", tt.agent, time.Since(begin))
	}
	claude.mu.Lock()
	defer claude.mu.Unlock()
	for _, key := range claude.keys {
		if key != "canary" {
			t.Errorf("claude has the key %q", key)
		}
	}
}
