package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// codexTimeout bounds each wait of a codexConn.
const codexTimeout = 30 * time.Second

// codexError is an error in a response.
type codexError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *codexError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// codexMessage is a message of the server.
type codexMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params codexNote       `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *codexError     `json:"error"`
}

// codexNote is the content of a notification.
type codexNote struct {
	Method    string `json:"-"`
	ProcessID string `json:"processId"`
	Seq       uint64 `json:"seq"`
	Stream    string `json:"stream"`
	Chunk     []byte `json:"chunk"`
	ExitCode  *int   `json:"exitCode"`

	WatchID   int    `json:"watchId"`
	RequestID string `json:"requestId"`
	Delta     []byte `json:"deltaBase64"`
	Done      bool   `json:"done"`
	Error     string `json:"error"`
}

// codexConn is a client of the exec-server protocol that knows nothing but its messages.
type codexConn struct {
	t  testing.TB
	ws *websocket.Conn

	mu      sync.Mutex
	changed chan struct{}
	answers []codexMessage
	notes   []codexNote
	err     error
	next    int
}

// codexURL returns a WebSocket URL at a gateway.
func codexURL(a *rig.API, path string) string { return "ws" + strings.TrimPrefix(a.URL, "http") + path }

// dialer connects WebSockets to a gateway.
func dialer(a *rig.API) *websocket.Dialer {
	return &websocket.Dialer{HandshakeTimeout: codexTimeout, TLSClientConfig: a.TLS()}
}

// tryCodex connects, and returns the status of a refusal.
func tryCodex(ctx context.Context, a *rig.API, path string, headers ...string) (*websocket.Conn, int, error) {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	ws, resp, err := dialer(a).DialContext(ctx, codexURL(a, path), h)
	status := 0
	if resp != nil {
		status = resp.StatusCode
		resp.Body.Close()
	}
	return ws, status, err
}

// dialCodex connects with the API key and additional headers.
func dialCodex(t testing.TB, a *rig.API, path string, headers ...string) *codexConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), codexTimeout)
	defer cancel()
	ws, status, err := tryCodex(ctx, a, path, append([]string{"Authorization", "Bearer " + a.Key}, headers...)...)
	if err != nil {
		t.Fatalf("connect to %s: %d %v", path, status, err)
	}
	c := &codexConn{t: t, ws: ws, changed: make(chan struct{})}
	t.Cleanup(func() { ws.Close() })
	go c.read()
	return c
}

func (c *codexConn) read() {
	for {
		_, raw, err := c.ws.ReadMessage()
		var m codexMessage
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		c.mu.Lock()
		switch {
		case err != nil:
			c.err = err
		case m.Method != "":
			m.Params.Method = m.Method
			c.notes = append(c.notes, m.Params)
		default:
			c.answers = append(c.answers, m)
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until done returns true; it runs with the connection locked.
func (c *codexConn) await(what string, done func() bool) {
	c.t.Helper()
	timer := time.NewTimer(codexTimeout)
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !done() {
		changed, err := c.changed, c.err
		if err != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
		c.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			c.mu.Lock()
			c.t.Fatalf("no %s after %v; notifications: %+v", what, codexTimeout, c.notes)
		}
		c.mu.Lock()
	}
}

// send sends a message as it is.
func (c *codexConn) send(raw string) {
	c.t.Helper()
	if err := c.ws.WriteMessage(websocket.TextMessage, []byte(raw)); err != nil {
		c.t.Fatal(err)
	}
}

// answer waits for the response to an id, as JSON.
func (c *codexConn) answer(id string) codexMessage {
	c.t.Helper()
	var got codexMessage
	c.await("answer to "+id, func() bool {
		i := slices.IndexFunc(c.answers, func(m codexMessage) bool { return string(m.ID) == id })
		if i >= 0 {
			got = c.answers[i]
			c.answers = slices.Delete(c.answers, i, i+1)
		}
		return i >= 0
	})
	return got
}

// ask sends a request and returns the response.
func (c *codexConn) ask(method string, params any) codexMessage {
	c.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		c.t.Fatal(err)
	}
	c.next++
	id := fmt.Sprint(c.next)
	c.send(`{"id":` + id + `,"method":"` + method + `","params":` + string(raw) + `}`)
	return c.answer(id)
}

// call is ask for a request that must succeed, and decodes the result.
func (c *codexConn) call(method string, params, into any) {
	c.t.Helper()
	m := c.ask(method, params)
	if m.Error != nil {
		c.t.Fatalf("%s %v: %v", method, params, m.Error)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(m.Result, into); err != nil {
		c.t.Fatalf("%s: %s: %v", method, m.Result, err)
	}
}

// refused fails the test unless a request is refused with a code.
func (c *codexConn) refused(code int, method string, params any) {
	c.t.Helper()
	if m := c.ask(method, params); m.Error == nil || m.Error.Code != code {
		c.t.Errorf("%s %v: result %s, error %v; want %d", method, params, m.Result, m.Error, code)
	}
}

// begin is the handshake. It returns the session's id.
func (c *codexConn) begin(resume string) string {
	c.t.Helper()
	params := map[string]any{"clientName": "e2e"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	var session struct {
		SessionID string `json:"sessionId"`
	}
	c.call("initialize", params, &session)
	if session.SessionID == "" || resume != "" && session.SessionID != resume {
		c.t.Fatalf("session %q, resumed %q", session.SessionID, resume)
	}
	c.send(`{"method":"initialized","params":{"ignored":[1]}}`)
	return session.SessionID
}

// codexArgs are parameters.
type codexArgs = map[string]any

// start starts a shell command; fields are names and values in turn, which override the default.
func (c *codexConn) start(id, script string, fields ...any) {
	c.t.Helper()
	c.call("process/start", startArgs(id, script, fields...), nil)
}

func startArgs(id, script string, fields ...any) codexArgs {
	args := codexArgs{
		"processId": id, "argv": []string{"/bin/sh", "-c", script}, "cwd": "/tmp",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": false, "arg0": nil,
	}
	for i := 0; i+1 < len(fields); i += 2 {
		args[fmt.Sprint(fields[i])] = fields[i+1]
	}
	return args
}

// codexOutput is what the notifications of a process contain.
type codexOutput struct {
	bytes   map[string][]byte // by stream
	code    int
	exits   int
	exited  uint64 // seq
	closed  uint64 // seq; 0: not yet
	lastOut uint64 // seq of the last output
	dense   bool   // the seqs are dense from 1
}

// output returns what was notified about a process. The caller holds mu.
func (c *codexConn) output(id string) codexOutput {
	o := codexOutput{bytes: map[string][]byte{}, dense: true}
	want := uint64(1)
	for _, n := range c.notes {
		if n.ProcessID != id {
			continue
		}
		o.dense = o.dense && n.Seq == want
		want = n.Seq + 1
		switch n.Method {
		case "process/output":
			o.bytes[n.Stream] = append(o.bytes[n.Stream], n.Chunk...)
			if len(n.Chunk) > 0 {
				o.lastOut = n.Seq
			}
		case "process/exited":
			o.exits++
			o.exited = n.Seq
			if n.ExitCode != nil {
				o.code = *n.ExitCode
			}
		case "process/closed":
			o.closed = n.Seq
		}
	}
	return o
}

// closed waits for the end of a process and returns all about it.
func (c *codexConn) closed(id string) codexOutput {
	c.t.Helper()
	var o codexOutput
	c.await("end of "+id, func() bool {
		o = c.output(id)
		return o.closed > 0
	})
	return o
}

// prints waits until a process has written text to a stream.
func (c *codexConn) prints(id, stream, text string) {
	c.t.Helper()
	c.await(fmt.Sprintf("output %q of %s", text, id), func() bool {
		return strings.Contains(string(c.output(id).bytes[stream]), text)
	})
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
