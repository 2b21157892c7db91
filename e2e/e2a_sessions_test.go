package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

const conversationBody = `{"template":"standard","llm":{"vendor":"anthropic"},"user_id":"you"}`

// conversation is the response to a create or a resume.
type conversation struct {
	ID         string `json:"chat_session_id"`
	JWT        string
	ConnectURL string `json:"connect_url"`
	VM         string `json:"vm_id"`
	From       struct {
		Status string `json:"previous_status"`
	} `json:"resumed_from"`
}

// converse sends a request for a conversation.
func converse(t *testing.T, a *rig.API, path, body string, status int) (c conversation) {
	t.Helper()
	a.Want(t, status, "POST", path, json.RawMessage(body), "Authorization", "Bearer "+a.Key).Decode(t, &c)
	return c
}

func resumption(id string) string { return `{"chat_session_id":"` + id + `"}` }

// talk is a connection to a conversation.
type talk struct {
	t  *testing.T
	ws *websocket.Conn
	at string // position behind what was received
}

// talkTo connects to a conversation at a gateway, as long as that takes.
func talkTo(t *testing.T, a *rig.API, c *conversation, query string) *talk {
	t.Helper()
	var ws *websocket.Conn
	var err error
	if !rig.Poll(time.Minute, func() bool {
		url := "ws" + strings.TrimPrefix(a.URL, "http") + "/v1/sessions/" + c.ID + "/ws" + query
		ws, _, err = websocket.DefaultDialer.Dial(url, http.Header{"Authorization": {"Bearer " + c.JWT}})
		return err == nil
	}) {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	return &talk{t: t, ws: ws}
}

// frameOf is a message of the runtime or the gateway.
type frameOf struct {
	Type, Event, Data, After string
	Keys                     []string
	ExitCode                 *int `json:"exit_code"`
}

func (k *talk) send(command string) {
	k.t.Helper()
	raw, err := json.Marshal(map[string]string{"type": "exec", "command": command})
	must(k.t, err)
	k.ws.SetReadDeadline(time.Now().Add(time.Minute))
	must(k.t, k.ws.WriteMessage(websocket.TextMessage, raw))
}

// read returns the next message but for positions.
func (k *talk) read() (frameOf, error) {
	for {
		_, raw, err := k.ws.ReadMessage()
		if err != nil {
			return frameOf{}, err
		}
		var f frameOf
		must(k.t, json.Unmarshal(raw, &f))
		if f.Event != "position" {
			return f, nil
		}
		k.at = f.After
	}
}

// run runs a command and returns its output.
func (k *talk) run(command string) string {
	k.t.Helper()
	k.send(command)
	var out strings.Builder
	for {
		f, err := k.read()
		must(k.t, err)
		switch f.Type {
		case "stdout":
			out.WriteString(f.Data)
		case "exit":
			return out.String()
		}
	}
}

// closed checks the code of the close frame.
func (k *talk) closed(code int, reason string) {
	k.t.Helper()
	for {
		_, err := k.read()
		if err == nil {
			continue
		}
		var c *websocket.CloseError
		if !errors.As(err, &c) || c.Code != code || reason != "" && c.Text != reason {
			k.t.Errorf("closed with %v, want %d %s", err, code, reason)
		}
		return
	}
}

// E-166, E-167, E-177..E-180, E-187, E-197, E-202, E-210: conversations at two gateways, of which one is
// killed, on one NATS server, and on three of which one is killed, too.
func TestE2ASessions(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]int{"one server": 1, "three servers": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkSessions(t, newTopology(t, rig.Topology{Gateways: 2, NATS: servers}))
		})
	}
}

func checkSessions(t *testing.T, s *rig.Split) {
	t.Helper()
	one, two := s.APIs[0], s.APIs[1]
	c := converse(t, one, "/v1/sessions", conversationBody, 201)
	if s.Servers() > 1 {
		s.Program("nats-2").Kill9()
	}
	first := talkTo(t, one, &c, "")
	if out := first.run("echo hello > greeting; cat greeting"); out != "hello\n" {
		t.Errorf("got %q", out)
	}
	second := talkTo(t, two, &c, "")
	first.closed(1011, "")
	if out := second.run("cat greeting"); out != "hello\n" {
		t.Errorf("got %q", out)
	}
	killedUnder(t, s, &c)

	var wg sync.WaitGroup
	var mu sync.Mutex
	results := make(map[conversation]int)
	for i := range 50 {
		wg.Go(func() {
			a := s.APIs[i%2]
			ans, err := a.Call("POST", "/v1/sessions/resume", resumption(c.ID), "Authorization", "Bearer "+a.Key)
			if err != nil || ans.Status != 200 {
				t.Errorf("resume: %v, %v", ans, err)
				return
			}
			var r conversation
			ans.Decode(t, &r)
			mu.Lock()
			defer mu.Unlock()
			results[r]++
		})
	}
	wg.Wait()
	if len(results) != 1 {
		t.Fatalf("%d results: %v", len(results), results)
	}
	for c = range results {
	}
	third := talkTo(t, two, &c, "")
	if out := third.run("cat greeting"); out != "hello\n" {
		t.Errorf("after a resume: %q", out)
	}
	one.Want(t, 204, "DELETE", "/sandboxes/"+strings.TrimPrefix(c.VM, "sbx_"), nil)
	third.closed(1001, "sandbox destroyed")
	talkTo(t, one, &c, "").closed(1011, "upstream unavailable")
}

// killedUnder kills a gateway under a client, which continues at the other one: no message is lost or
// repeated.
func killedUnder(t *testing.T, s *rig.Split, c *conversation) {
	t.Helper()
	const count = 200
	k := talkTo(t, s.APIs[0], c, "?after=")
	if k.run("true"); k.at == "" {
		must(t, k.ws.WriteMessage(websocket.TextMessage, []byte("{}"))) // its answer is followed by a position
		_, err := k.read()
		must(t, err)
	}
	k.send(fmt.Sprintf("for i in $(seq %d); do echo $i; sleep 0.01; done", count))
	var got, want strings.Builder
	for i := range count {
		fmt.Fprintln(&want, i+1)
	}
	// What arrived behind the last position arrives again.
	unconfirmed := ""
	killed := false
	for done := false; !done; {
		_, raw, err := k.ws.ReadMessage()
		if err != nil {
			unconfirmed = ""
			at := k.at
			k = talkTo(t, s.APIs[1], c, "?after="+at)
			k.at = at
			continue
		}
		var f frameOf
		must(t, json.Unmarshal(raw, &f))
		switch {
		case f.Event == "position":
			got.WriteString(unconfirmed)
			k.at, unconfirmed = f.After, ""
		case f.Type == "stdout":
			unconfirmed += f.Data
		case f.Type == "exit":
			got.WriteString(unconfirmed)
			done = got.Len() > 0
		}
		if !killed && strings.Contains(got.String(), "50\n") {
			killed = true
			s.Program("gateway-1").Kill9()
		}
	}
	if got.String() != want.String() || !killed {
		t.Errorf("killed %v, got %q", killed, got.String())
	}
	must(t, s.RestartProgram("gateway-1"))
}

// docs/e2a-sessions.md, with a WebSocket client.
func TestE2ASessionsDocs(t *testing.T) {
	t.Parallel()
	u := sharedUp(t)
	raw, err := os.ReadFile("../docs/e2a-sessions.md")
	must(t, err)
	r := &docsReader{string(raw), []string{"API=" + u.URL, "KEY=" + u.Key, "PATH=" + os.Getenv("PATH")}}
	const section = "From a key to a message"
	var c, again conversation
	must(t, json.Unmarshal([]byte(r.follow(t, section, 0)[0]), &c))
	k := talkTo(t, u.API, &c, "")
	lines := regexp.MustCompile(`(?m)^([<>]) (.*)$`).FindAllStringSubmatch(r.text, -1)
	if len(lines) != 3 {
		t.Fatalf("%q", lines)
	}
	for _, l := range lines {
		if l[1] == ">" {
			must(t, k.ws.WriteMessage(websocket.TextMessage, []byte(l[2])))
			continue
		}
		_, got, err := k.ws.ReadMessage()
		must(t, err)
		var is, want any
		must(t, json.Unmarshal(got, &is))
		must(t, json.Unmarshal([]byte(l[2]), &want))
		if fmt.Sprint(is) != fmt.Sprint(want) {
			t.Errorf("got %s, want %s", got, l[2])
		}
	}
	must(t, json.Unmarshal([]byte(r.follow(t, section, 1, "ID="+c.ID)[0]), &again))
	if again.ID != c.ID || again.JWT == c.JWT || again.From.Status != "running" {
		t.Errorf("resumed %+v", again)
	}
	k.closed(1001, "sandbox destroyed")
	u.Want(t, 204, "DELETE", "/sandboxes/"+strings.TrimPrefix(again.VM, "sbx_"), nil)
}
