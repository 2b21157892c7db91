package cli

import (
	"strings"
	"testing"
)

func TestCodexURL(t *testing.T) {
	g := newFakeGateway(t)
	at := "ws" + strings.TrimPrefix(g.Server.URL, "http")
	for _, tt := range []struct {
		name      string
		args      []string
		url       string
		has, lack string
	}{
		{"a sandbox per session", nil, at + "/codex/new", "auth_bearer_token = \"e2b_00\"", "CODEX_EXEC_SERVER_URL"},
		{"a sandbox with a token", []string{"--sandbox", "ifull"}, at + "/codex/ifull?token=t0", "export CODEX_EXEC_SERVER_URL='" + at + "/codex/ifull?token=t0'", "e2b_00"},
		{"a sandbox without a token", []string{"--sandbox", "iopen"}, at + "/codex/iopen", "auth_bearer_token = \"e2b_00\"", "?token="},
	} {
		got := g.verb(nil, append([]string{"codex", "url"}, tt.args...)...)
		for _, want := range []string{"url = \"" + tt.url + "\"\n", "\ninclude_local = false\n", "default = \"millrace\"\n", "id = \"millrace\"\n", tt.has} {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: no %q in\n%s (exit %d %s)", tt.name, want, got.out, got.code, got.say)
			}
		}
		if strings.Contains(got.out, tt.lack) {
			t.Errorf("%s: %q in\n%s", tt.name, tt.lack, got.out)
		}
	}
	if got := g.verb(nil, "codex", "url", "-o", "json", "--sandbox", "ifull"); !strings.Contains(got.out, `"url": "`+at+`/codex/ifull?token=t0"`) && !strings.Contains(got.out, `"url":"`+at+`/codex/ifull?token=t0"`) {
		t.Errorf("JSON: %s %s", got.out, got.say)
	}
	if got := g.verb(nil, "codex", "url", "--sandbox", "inone"); got.code == 0 || got.out != "" {
		t.Errorf("an unknown sandbox: exit %d, %q", got.code, got.out)
	}
}
