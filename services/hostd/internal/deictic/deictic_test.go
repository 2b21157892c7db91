package deictic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// E-231, E-232: the result alone is standard output, in both formats.
func TestATaskIsCompletedByTools(t *testing.T) {
	for _, vendor := range vendors {
		t.Run(string(vendor), func(t *testing.T) {
			s := newScripted(t,
				step{tool: "write_file", args: `{"path":"notes/a.txt","content":"héllo\n"}`},
				step{tool: "shell_exec", args: `{"command":"cat notes/a.txt; echo $LLM_KEY$TASK"}`},
				step{tool: "read_file", args: `{"path":"notes/a.txt"}`},
				step{tool: "list_directory", args: `{"path":"."}`},
				step{text: "All is done."},
			)
			r := newRun(t, s, map[string]string{"TASK": "greet", "LLM_VENDOR": string(vendor)})
			if code := r.once(t.Context()); code != 0 || r.out.String() != "All is done.\n" {
				t.Fatalf("exit code %d, printed %q and %s", code, r.out.String(), r.log.String())
			}
			if b, err := os.ReadFile(filepath.Join(r.home, "notes/a.txt")); string(b) != "héllo\n" {
				t.Errorf("the file has %q: %v", b, err)
			}
			last := s.requests()[4]
			for _, want := range []string{`héllo\n\n\n[exit code 0]`, "notes/", "greet"} {
				if !strings.Contains(last, want) {
					t.Errorf("the last request lacks %q: %s", want, last)
				}
			}
			for i, key := range s.keys {
				if !strings.HasSuffix(key, "sk-canary") || strings.Contains(s.bodies[i], "sk-canary") {
					t.Errorf("request %d: key %q, body %s", i, key, s.bodies[i])
				}
			}
			if strings.Contains(r.log.String(), "sk-canary") {
				t.Error("the key was printed")
			}
		})
	}
}

// E-053: a client's proxy may be an http server of its own network; the platform's URL is https.
func TestEndpointsOfProxies(t *testing.T) {
	for _, tt := range []struct {
		values   map[string]string
		url, err string
	}{
		{map[string]string{"LLM_MODEL": "claude-x", "ANTHROPIC_BASE_URL": "http://proxy.internal"}, "http://proxy.internal/v1/messages", ""},
		{map[string]string{"LLM_MODEL": "gpt-x", "OPENAI_BASE_URL": "http://proxy.internal/v1"}, "http://proxy.internal/v1/chat/completions", ""},
		{map[string]string{"LLM_MODEL": "gpt-x", "ANTHROPIC_BASE_URL": "http://proxy.internal"}, "https://api.openai.com/v1/chat/completions", ""},
		{map[string]string{"LLM_MODEL": "gpt-x", "LLM_BASE_URL": "http://proxy.internal/v1"}, "", "must be https"},
	} {
		e, err := endpointOf(tt.values)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: %v", tt.values, err)
			}
		} else if err != nil || e.URL() != tt.url {
			t.Errorf("%v: %s, %v", tt.values, e.URL(), err)
		}
	}
}
