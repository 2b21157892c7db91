package deictic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// E-212: each answer has its tokens in a frame.
func TestFramesOfATurn(t *testing.T) {
	for _, vendor := range vendors {
		t.Run(string(vendor), func(t *testing.T) {
			s := newScripted(t, step{tool: "shell_exec", args: `{"command":"echo out; exit 3"}`}, step{text: "two words"})
			r := newRun(t, s, map[string]string{"LLM_VENDOR": string(vendor)})
			code, all := r.say(t, "do it")
			kinds := ""
			for _, f := range all {
				kinds += f.Type + " "
			}
			if want := "runtime_event tool_call tool_result agent_text agent_text agent_message runtime_event turn_end "; code != 0 || kinds != want {
				t.Fatalf("exit code %d, got %s, want %s", code, kinds, want)
			}
			for _, f := range find(all, "runtime_event") {
				if f.Event != "llm_usage" || *f.Input != 10 || *f.Tokens != 5 || f.Model != "m1" {
					t.Errorf("got %+v", f)
				}
			}
			if out := *find(all, "tool_result")[0].Output; out != "out\n\n[exit code 3]" {
				t.Errorf("got %q", out)
			}
			if end := find(all, "turn_end")[0]; end.Status != statusCompleted {
				t.Errorf("got %+v", end)
			}
		})
	}
}

func TestPathsOutsideAreRefused(t *testing.T) {
	s := newScripted(t)
	r := newRun(t, s, nil)
	secret := filepath.Join(r.dir, "secret")
	if err := os.WriteFile(secret, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": secret, "dir": r.dir, "up": ".."} {
		if err := os.Symlink(target, filepath.Join(r.home, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := &files{dir: r.home, roots: []string{r.home}}
	for _, path := range []string{"/etc/passwd", "../secret", "link", "dir/secret", "up/secret", "a/../../secret", secret, string(r.config), "", "a\x00b"} {
		if out, err := f.read(path); err == nil {
			t.Errorf("read %q: %q", path, out)
		}
		if out, err := f.write(path, "x"); err == nil {
			t.Errorf("write %q: %q", path, out)
		}
	}
	for _, path := range []string{"/", "..", "dir", "up"} {
		if out, err := f.list(path); err == nil {
			t.Errorf("list %q: %q", path, out)
		}
		if out, err := f.search(t.Context(), path, "canary"); err == nil && strings.Contains(out, "secret") {
			t.Errorf("search %q: %q", path, out)
		}
	}
	if b, err := os.ReadFile(secret); string(b) != "canary" {
		t.Errorf("the file has %q: %v", b, err)
	}
}

// A failure of a tool is for the model to handle, whatever it names.
func TestFailuresOfToolsAreResults(t *testing.T) {
	s := newScripted(t,
		step{tool: "read_file", args: `{"path":"/etc/shadow"}`},
		step{tool: "no_such_tool", args: `{}`},
		step{tool: "read_file", args: `{"path":`},
		step{tool: "read_file", args: `{"path":7}`},
		step{text: "sorry"},
	)
	r := newRun(t, s, nil)
	_, all := r.say(t, "do it")
	got := find(all, "tool_result")
	if len(got) != 4 {
		t.Fatalf("got %+v", all)
	}
	for i, want := range []string{"outside", "no tool", "not a JSON object", "not valid"} {
		if !got[i].Failed || !strings.Contains(*got[i].Output, want) {
			t.Errorf("got %+v, want %q", got[i], want)
		}
	}
}

// E-042: the planner delegates to agents by their names or capabilities, each with its own tools.
func TestAPlannerDelegates(t *testing.T) {
	const app = `{"name":"a","capability_sets":[{"name":"s","agents":[
		{"name":"writer","capability_name":"writing","capability_description":"writes files","tools":["file_write"]},
		{"name":"runner","capability_name":"running","capability_description":"runs commands","tools":["shell","unknown"]}]}]}`
	for _, vendor := range vendors {
		t.Run(string(vendor), func(t *testing.T) {
			s := newScripted(t,
				step{tool: "delegate", args: `{"agent":"writer","task":"write it"}`},
				step{tool: "write_file", args: `{"path":"f","content":"x"}`},
				step{text: "written"},
				step{tool: "delegate", args: `{"agent":"running","task":"run it"}`},
				step{tool: "shell_exec", args: `{"command":"cat f"}`},
				step{text: "ran"},
				step{tool: "delegate", args: `{"agent":"nobody","task":"x"}`},
				step{text: "all done"},
			)
			r := newRun(t, s, map[string]string{"APP_JSON": app, "LLM_VENDOR": string(vendor)})
			code, all := r.say(t, "do it")
			said := find(all, "agent_message")
			if code != 0 || len(said) != 3 || said[0].Agent != "writer" || said[1].Agent != "runner" || said[2].Agent != plannerName || said[2].Text != "all done" {
				t.Fatalf("exit code %d, got %+v", code, all)
			}
			b := s.requests()
			if strings.Contains(b[0], "write_file") || !strings.Contains(b[1], "write_file") || strings.Contains(b[1], "shell_exec") || strings.Contains(b[1], "do it") {
				t.Errorf("tools of the planner %s, of the writer %s", b[0], b[1])
			}
			if !strings.Contains(b[3], "written") || !strings.Contains(b[5], `x\n[exit code 0]`) || !strings.Contains(b[7], "no agent") {
				t.Errorf("requests %s", b)
			}
			if !strings.Contains(r.log.String(), "unknown") {
				t.Errorf("the log has %q", r.log.String())
			}
		})
	}
}

// E-208: a key that is replaced while the old one is refused does not lose the turn.
func TestANewKeyContinuesTheTurn(t *testing.T) {
	var r *run
	var s *scripted
	s = newScripted(t,
		step{tool: "shell_exec", args: `{"command":"true"}`},
		step{serve: func(w http.ResponseWriter, _ *http.Request) {
			r.configure(t, map[string]string{"LLM_VENDOR": "openai", "LLM_BASE_URL": s.URL, "LLM_API_KEY": "second"})
			http.Error(w, "expired", http.StatusUnauthorized)
		}},
		step{text: "done"},
	)
	r = newRun(t, s, nil)
	if code, all := r.say(t, "do it"); code != 0 {
		t.Fatalf("got %+v", all)
	}
	if want := []string{"Bearer sk-canary", "Bearer sk-canary", "Bearer second"}; fmt.Sprint(s.keys) != fmt.Sprint(want) {
		t.Errorf("keys %q", s.keys)
	}
}

// A turn that died continues from its record, and no tool runs twice.
func TestARecordIsContinued(t *testing.T) {
	for _, vendor := range vendors {
		t.Run(string(vendor), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			s := newScripted(t,
				step{text: "hello"},
				step{tool: "shell_exec", args: `{"command":"echo once >> count"}`},
				step{serve: func(_ http.ResponseWriter, r *http.Request) { cancel(errTerminated); <-r.Context().Done() }},
				step{text: "done"},
			)
			r := newRun(t, s, map[string]string{"LLM_VENDOR": string(vendor)})
			r.say(t, "first")
			r.stdin = strings.NewReader("second")
			r.turn(ctx)
			// Within the next step the process died: its line is incomplete.
			path := HistoryFile(r.home)
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(f, `{"message":{"role":"assistant","calls":[{"id":"x","name":"shell_exec","args":{"command":"echo twice >> count"}}]}}`)
			fmt.Fprint(f, `{"message":{"role":"tool","res`)
			f.Close()
			code, all := r.say(t, "")
			if code != 0 || find(all, "turn_end")[0].Status != statusCompleted {
				t.Fatalf("got %+v", all)
			}
			last := s.requests()[3]
			for _, want := range []string{"first", "hello", "second", "which may have run"} {
				if !strings.Contains(last, want) {
					t.Errorf("the request lacks %q: %s", want, last)
				}
			}
			if b, _ := os.ReadFile(filepath.Join(r.home, "count")); string(b) != "once\n" {
				t.Errorf("count has %q", b)
			}
			if code, all := r.say(t, ""); code != 0 || len(all) != 0 {
				t.Errorf("a turn that ended was continued: %+v", all)
			}
		})
	}
}

// E-143: an agent that is terminated prints what it has.
func TestTerminationPrintsWhatIsThere(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newScripted(t,
		step{serve: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", `{"choices":[{"delta":{"content":"so far","tool_calls":[{"index":0,"id":"a","function":{"name":"shell_exec","arguments":"{\"command\":\"true\"}"}}]},"finish_reason":"tool_calls"}]}`)
		}},
		step{serve: func(_ http.ResponseWriter, r *http.Request) { cancel(errTerminated); <-r.Context().Done() }},
	)
	r := newRun(t, s, map[string]string{"TASK": "x"})
	if code := r.once(ctx); code != exitTerminated || r.out.String() != "so far\n" {
		t.Errorf("exit code %d, printed %q", code, r.out.String())
	}
}

func TestFailedTasksHaveAnExitCode(t *testing.T) {
	tests := []struct {
		name   string
		values map[string]string
		code   int
		log    string
	}{
		{"the model refuses", map[string]string{}, exitFailed, "400"},
		{"unknown vendor", map[string]string{"LLM_VENDOR": "zzz"}, exitUsage, "unknown vendor"},
		{"bad app_json", map[string]string{"APP_JSON": "{"}, exitUsage, "app_json"},
		{"not https", map[string]string{"LLM_BASE_URL": "http://example.com"}, exitUsage, "https"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.values["TASK"] = "x"
			r := newRun(t, newScripted(t), tt.values)
			if code := r.once(t.Context()); code != tt.code || !strings.Contains(r.log.String(), tt.log) || r.out.Len() > 0 {
				t.Errorf("exit code %d, log %q", code, r.log.String())
			}
		})
	}
}

// A request is bounded and remains valid: it begins with a prompt, and each call has its result.
func TestRequestsAreBounded(t *testing.T) {
	var all []llm.Message
	for turn := range 20 {
		all = append(all, llm.Message{Role: llm.User, Text: fmt.Sprint("prompt ", turn)})
		for i := range 5 {
			id := fmt.Sprint(turn, "-", i)
			all = append(all,
				llm.Message{Role: llm.Assistant, Calls: []llm.Call{{ID: id, Name: "x", Args: json.RawMessage(`{"a":"` + strings.Repeat("a", 1000) + `"}`)}}},
				llm.Message{Role: llm.Tool, Results: []llm.Result{{ID: id, Output: strings.Repeat("o", 2000)}}})
		}
	}
	for _, limit := range []int{1 << 20, 100 << 10, 20 << 10, 4 << 10, 10} {
		got := bounded(all, limit)
		size := 0
		for i := range got {
			size += sizeOf(&got[i])
		}
		if got[0].Role != llm.User || limit >= 4<<10 && size > limit+8<<10 {
			t.Errorf("%d bytes: the first message is of %s, size %d", limit, got[0].Role, size)
		}
		if last := got[len(got)-1].Results[0]; len(last.Output) != 2000 {
			t.Errorf("%d bytes: the last result is %q", limit, last.Output)
		}
		for i := range got {
			for _, c := range got[i].Calls {
				if i+1 >= len(got) || got[i+1].Results[0].ID != c.ID {
					t.Errorf("%d bytes: the call %s has no result", limit, c.ID)
				}
			}
		}
	}
	if len(all[1].Calls[0].Args) < 1000 {
		t.Error("the messages themselves were changed")
	}
}

// FuzzRecord holds that a damaged record is read as far as possible and can be continued.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"message":{"role":"user","text":"a"}}` + "\n" + `{"message":{"role":"assistant","calls":[{"id":"x"}]}}` + "\n{"))
	f.Add([]byte("null\n{}\n[]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "h")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := openHistory(path)
		if err != nil {
			t.Fatal(err)
		}
		n := len(h.messages)
		if err := h.add(llm.Message{Role: llm.User, Text: "next"}); err != nil {
			t.Fatal(err)
		}
		again, err := openHistory(path)
		if err != nil || len(again.messages) > n+1 || again.messages[len(again.messages)-1].Text != "next" || !again.open {
			t.Fatalf("%d messages, then %+v: %v", n, again, err)
		}
	})
}

func TestEachCallHasItsResult(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	text := `{"message":{"role":"tool","results":[{"id":"z","output":"of no call"}]}}
{"message":{"role":"user","text":"a"}}
{"message":{"role":"assistant","calls":[{"id":"1","args":{}},{"id":"2","args":{}}]}}
{"message":{"role":"tool","results":[{"id":"2","output":"two"}]}}
{"message":{"role":"user","text":"b"}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := openHistory(path)
	if err != nil || len(h.messages) != 5 || h.messages[2].Results[0].Output != lost || h.messages[3].Results[0].Output != "two" {
		t.Errorf("got %+v, %v", h.messages, err)
	}
}
