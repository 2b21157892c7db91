package convruntime_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/frame"
)

// turnFrame is a frame of the agent.
type turnFrame struct {
	Type, Text, Status, Error, Event string
	Input                            int64 `json:"input_tokens"`
}

// turn returns the frames up to the end of a turn.
func (v *conversation) turn() (all []turnFrame) {
	v.t.Helper()
	for {
		var f turnFrame
		if err := json.Unmarshal([]byte(v.next(frame.Text)), &f); err != nil {
			v.t.Fatal(err)
		}
		if all = append(all, f); f.Type == "turn_end" {
			return all
		}
	}
}

// E-237, E-212: prompts are turns, one after another, with the tokens of each answer. The record of a
// turn that was interrupted is continued by the next runtime, once a client is attached.
func TestPromptsAreTurnsOfTheAgent(t *testing.T) {
	p := newProgram(t)
	hang := make(chan struct{}, 1)
	var last string
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		last = string(b)
		if strings.Contains(last, "hang") && !strings.Contains(last, "go on") {
			hang <- struct{}{}
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(model.Close)
	home := t.TempDir()
	c := bootstrap.Config{Secrets: map[string]string{"LLM_API_KEY": "k"}, Platform: map[string]string{"LLM_VENDOR": "openai", "LLM_BASE_URL": model.URL}}
	p.home = home
	v := p.start(c)
	v.send(frame.Text, `{"type":"prompt","text":"one"}`)
	v.send(frame.Text, `{"type":"prompt","text":"two"}`)
	for range 2 {
		got := v.turn()
		if end := got[len(got)-1]; end.Status != "completed" || len(got) != 4 || got[1].Text != "hello" || got[2].Event != "llm_usage" || got[2].Input != 3 {
			t.Fatalf("got %+v", got)
		}
	}
	if !strings.Contains(last, "one") || !strings.Contains(last, "two") {
		t.Errorf("the second turn has the request %s", last)
	}
	v.send(frame.Text, `{"type":"prompt","text":"hang"}`)
	<-hang
	v.send(frame.Text, `{"type":"interrupt"}`)
	if got := v.turn(); got[len(got)-1].Status != "interrupted" {
		t.Errorf("got %+v", got)
	}
	v.send(frame.Text, `{"type":"prompt","text":""}`)
	if got := v.next(frame.Text); got != `{"type":"prompt","text":""}` {
		t.Errorf("got %q", got)
	}
	// A turn whose record has no end.
	record := filepath.Join(home, bootstrap.AgentHistory)
	f, err := os.OpenFile(record, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, `{"message":{"role":"user","text":"go on"}}`)
	f.Close()
	again := p.start(c)
	again.tell(frame.Message{Attach: &frame.Attach{ID: "a"}})
	again.control()
	if got := again.turn(); got[len(got)-1].Status != "completed" || !strings.Contains(last, "go on") {
		t.Errorf("got %+v", got)
	}
}

// An interrupt that arrives before the turn's process exists, or before it handles signals, ends that turn and no
// other, and its record is closed.
func TestAnInterruptIsNotLost(t *testing.T) {
	p := newProgram(t)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []struct{ Content string } }
		raw, _ := io.ReadAll(r.Body) // the server notices the client's end after it
		if err := json.Unmarshal(raw, &body); err == nil && body.Messages[len(body.Messages)-1].Content == "hang" {
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(model.Close)
	p.home = t.TempDir()
	v := p.start(bootstrap.Config{Secrets: map[string]string{"LLM_API_KEY": "k"}, Platform: map[string]string{"LLM_VENDOR": "openai", "LLM_BASE_URL": model.URL}})
	v.send(frame.Text, `{"type":"interrupt"}`) // there is no turn
	for range 5 {
		v.send(frame.Text, `{"type":"prompt","text":"hang"}`)
		v.send(frame.Text, `{"type":"interrupt"}`)
		v.send(frame.Text, `{"type":"interrupt"}`)
		v.send(frame.Text, `{"type":"prompt","text":"next"}`)
		if got := v.turn(); got[len(got)-1].Status != "interrupted" {
			t.Errorf("got %+v", got)
		}
		if got := v.turn(); got[len(got)-1].Status != "completed" {
			t.Errorf("the turn after it: %+v", got)
		}
	}
	record, err := os.ReadFile(filepath.Join(p.home, bootstrap.AgentHistory))
	if err != nil || strings.Count(string(record), `{"end":"interrupted"}`) != 5 || strings.Count(string(record), `{"end":"completed"}`) != 5 {
		t.Errorf("the record is %s, %v", record, err)
	}
}
