package e2e_test

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// TestEgressRules sends requests from a sandbox whose host adds headers, also over TLS:
// curl, Python and others accept the host's certificate because the sandbox trusts it. The
// header's value is not in the sandbox, the records or the logs.
func TestEgressRules(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("without isolation sandboxes use the host's network")
	}
	world := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d %s %s\n", len(r.Header.Get("X-Secret")), r.Header.Get("X-Public"), r.Host)
	}))
	t.Cleanup(world.Close)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: world.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	up := rig.NewUp(t, rig.Options{
		Args: []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", rig.DNS(t, map[string]string{"example.com": "127.0.0.1"})},
		Env:  []string{"SSL_CERT_FILE=" + roots},
	})
	_, port, _ := net.SplitHostPort(world.Listener.Addr().String())
	const secret = "canary-of-the-rules"
	rules := func(public string) map[string]any {
		return map[string]any{"example.com": []any{map[string]any{"transform": map[string]any{"headers": map[string]string{"X-Secret": secret, "X-Public": public}}}}}
	}
	box := up.Create(t, "allow_internet_access", true, "network", map[string]any{"rules": rules("one")})
	url := "https://example.com:" + port + "/"
	run := func(cmd string) string {
		t.Helper()
		return rig.Output(up.Commands(t, box.ID, cmd+" 2>&1").All(t), "stdout")
	}
	want := func(public string) string { return fmt.Sprintf("%d %s example.com:%s\n", len(secret), public, port) }
	for _, tt := range []struct{ program, cmd string }{
		{"curl", "curl -sS -H 'X-Secret: mine' " + url},
		{"openssl", "printf 'GET / HTTP/1.0\\r\\nHost: example.com:" + port + "\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -proxy 127.0.0.1:3128 -connect example.com:" + port + " 2>/dev/null | tail -n 1"},
		{"python3", "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"" + url + "\").read().decode(), end=\"\")'"},
	} {
		if run("command -v "+tt.program+" >/dev/null && echo there") != "there\n" {
			t.Logf("no %s in the sandbox", tt.program)
			continue
		}
		if got := run(tt.cmd); got != want("one") {
			t.Errorf("%s: %q, want %q", tt.cmd, got, want("one"))
		}
	}
	// The same with a secret of the tenant that the rule refers to.
	up.Want(t, http.StatusCreated, http.MethodPost, "/secrets", map[string]string{"name": "Mine", "value": secret})
	named := map[string]any{"example.com": []any{map[string]any{"transform": map[string]any{"headers": map[string]string{"X-Secret": "${e2b.secrets.Mine}", "X-Public": "two"}}}}}
	up.Want(t, http.StatusNoContent, http.MethodPut, "/sandboxes/"+box.ID+"/network", map[string]any{"rules": named})
	if !rig.Poll(20*time.Second, func() bool { return run("curl -sS "+url) == want("two") }) {
		t.Errorf("after a change: %q", run("curl -sS "+url))
	}
	// A proxy that does not respond: nothing bypasses it.
	up.Want(t, http.StatusNoContent, http.MethodPut, "/sandboxes/"+box.ID+"/network", map[string]any{"egressProxy": map[string]string{"address": "127.0.0.1:9", "username": "u", "password": secret}})
	if !rig.Poll(20*time.Second, func() bool { return strings.Contains(run("curl -sS "+url), "502") }) {
		t.Errorf("bypassed the proxy: %q", run("curl -sS "+url))
	}
	for what, text := range map[string]string{
		"the sandbox": run("env; cat /proc/*/environ; grep -r " + secret[:10] + " /etc /run /tmp 2>/dev/null"),
		"the log":     up.Dump(),
		"its events":  fmt.Sprint(up.Do(t, http.MethodGet, "/v2/sandboxes/"+box.ID+"/logs", nil)),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret", what)
		}
	}
	if err := grepTree(up.Data, secret); err != nil {
		t.Error(err)
	}
}

// grepTree returns an error for a file below dir that contains the text.
func grepTree(dir, text string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), text) {
			return fmt.Errorf("%s has %q", path, text)
		}
		return nil
	})
}
