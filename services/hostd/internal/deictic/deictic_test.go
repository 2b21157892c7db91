package deictic

import (
	"io"
	"net/http"
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

// A value that is too large for a variable, and a command that is too large for an argument, do not keep other
// commands from running.
func TestLargeValuesAndCommands(t *testing.T) {
	large := strings.Repeat("x", 128<<10)
	s := newScripted(t,
		step{tool: "shell_exec", args: `{"command":"echo [$SMALL] [$LARGE]"}`},
		step{tool: "shell_exec", args: quote(map[string]string{"command": "echo " + large})},
		step{text: "done"})
	r := newRun(t, s, map[string]string{"SMALL": "small", "LARGE": large})
	_, all := r.say(t, "do it")
	got := find(all, "tool_result")
	if len(got) != 2 || *got[0].Output != "[small] []\n\n[exit code 0]\n[variables that are too large for a command, and are in the configuration only: LARGE]" {
		t.Fatalf("got %.500v", all)
	}
	if !got[1].Failed || !strings.Contains(*got[1].Output, "write_file") {
		t.Errorf("got %.500s", *got[1].Output)
	}
}

// An endpoint that ignores the request to stream answers with one JSON object.
func TestAnswersThatAreNotStreamed(t *testing.T) {
	whole := func(text string) step {
		return step{serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "\n"+text)
		}}
	}
	for vendor, steps := range map[string][]step{
		"openai": {
			whole(`{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":null,"tool_calls":[
				{"id":"a","type":"function","function":{"name":"shell_exec","arguments":"{\"command\":\"echo one\"}"}},
				{"id":"b","type":"function","function":{"name":"shell_exec","arguments":"{\"command\":\"echo two\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`),
			whole(`{"choices":[{"message":{"content":"all done"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`),
		},
		"anthropic": {
			whole(`{"type":"message","content":[{"type":"text","text":"so"},{"type":"tool_use","id":"a","name":"shell_exec","input":{"command":"echo one"}},
				{"type":"tool_use","id":"b","name":"shell_exec","input":{"command":"echo two"}}],"stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":5}}`),
			whole(`{"type":"message","content":[{"type":"text","text":"all done"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`),
		},
	} {
		t.Run(vendor, func(t *testing.T) {
			s := newScripted(t, steps...)
			_, all := newRun(t, s, map[string]string{"LLM_VENDOR": vendor}).say(t, "do it")
			results, said := find(all, "tool_result"), find(all, "agent_message")
			if len(results) != 2 || !strings.HasPrefix(*results[0].Output, "one") || !strings.HasPrefix(*results[1].Output, "two") || said[len(said)-1].Text != "all done" {
				t.Errorf("got %+v", all)
			}
			if u := find(all, "runtime_event"); len(u) != 2 || *u[0].Input != 10 || *u[0].Tokens != 5 {
				t.Errorf("tokens: %+v", u)
			}
			if len(s.requests()) != 2 {
				t.Errorf("%d requests", len(s.requests()))
			}
		})
	}
}
