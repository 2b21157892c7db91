package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/hinshun/vt10x"

	"github.com/millrace/millrace/e2e/rig"
)

// at returns the client for another gateway.
func (b *backend) at(a *rig.API) *backend {
	c := *b
	c.a = a
	return &c
}

// screen is the size of the terminals of viewers.
const screenRows, screenCols = 24, 80

// backendViewer is a viewer of a session's terminal with a screen of its own.
type backendViewer struct {
	b    *backend
	ws   *websocket.Conn
	vt   vt10x.Terminal
	done chan struct{} // closed when the connection has ended

	mu     sync.Mutex
	text   strings.Builder // all output
	errors []string        // texts of error frames
	end    error           // why the connection ended
	send   sync.Mutex
}

// view connects to a session's terminal.
func (b *backend) view(session string) *backendViewer {
	b.t.Helper()
	v := &backendViewer{b: b, ws: b.dial("/stream/session/" + session + "/pty"), vt: vt10x.New(vt10x.WithSize(screenCols, screenRows)), done: make(chan struct{})}
	v.ws.SetReadDeadline(time.Time{})
	go v.read()
	b.t.Cleanup(func() {
		v.ws.Close()
		<-v.done
	})
	return v
}

// read feeds the screen.
func (v *backendViewer) read() {
	defer close(v.done)
	for {
		_, raw, err := v.ws.ReadMessage()
		if err != nil {
			v.mu.Lock()
			v.end = err
			v.mu.Unlock()
			return
		}
		var m struct{ Type, Data string }
		if err := json.Unmarshal(raw, &m); err != nil {
			v.b.t.Errorf("%s: %v", raw, err)
			continue
		}
		v.mu.Lock()
		if m.Type == "out" {
			data, err := base64.StdEncoding.DecodeString(m.Data)
			if err != nil {
				v.b.t.Errorf("%s: %v", raw, err)
			}
			v.text.Write(data)
			v.vt.Write(data)
		} else {
			v.errors = append(v.errors, m.Data)
		}
		v.mu.Unlock()
	}
}

// try sends a message.
func (v *backendViewer) try(m map[string]any) error {
	v.send.Lock()
	defer v.send.Unlock()
	return v.ws.WriteJSON(m)
}

// resize sets the size of the terminal to that of the screens.
func (v *backendViewer) resize() {
	v.b.t.Helper()
	if err := v.try(map[string]any{"type": "resize", "rows": screenRows, "cols": screenCols}); err != nil {
		v.b.t.Fatal(err)
	}
}

func chars(text string) map[string]any {
	return map[string]any{"type": "stdin", "chars": base64.StdEncoding.EncodeToString([]byte(text))}
}

// enter types a text.
func (v *backendViewer) enter(text string) {
	v.b.t.Helper()
	if err := v.try(chars(text)); err != nil {
		v.b.t.Fatal(err)
	}
}

// screen returns what the screen shows, and the cursor.
func (v *backendViewer) screen() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprintf("%s\n%+v", v.vt.String(), v.vt.Cursor())
}

// output returns all output.
func (v *backendViewer) output() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.String()
}

const viewerTimeout = 2 * time.Minute

// await waits for output.
func (v *backendViewer) await(want string) {
	v.b.t.Helper()
	if !rig.Poll(viewerTimeout, func() bool { return strings.Contains(v.output(), want) }) {
		v.b.t.Fatalf("%q is not in the output: %.2000q %v", want, v.output(), v.end)
	}
}

// shows waits for a text on the screen.
func (v *backendViewer) shows(want string) {
	v.b.t.Helper()
	if !rig.Poll(viewerTimeout, func() bool { return strings.Contains(v.screen(), want) }) {
		v.b.t.Fatalf("%q is not on the screen:\n%s\n%v", want, v.screen(), v.end)
	}
}

// same waits until both screens are equal.
func (v *backendViewer) same(other *backendViewer) {
	v.b.t.Helper()
	if !rig.Poll(viewerTimeout, func() bool { return v.screen() == other.screen() }) {
		v.b.t.Fatalf("one screen:\n%s\nthe other:\n%s", v.screen(), other.screen())
	}
}

// shell prepares a shell for a test: it waits until it answers.
func (v *backendViewer) shell() {
	v.b.t.Helper()
	v.resize()
	v.enter("PS1=; unset PROMPT_COMMAND; echo rea''dy\r")
	v.await("ready\r\n")
}

// ended reports whether the connection has ended.
func (v *backendViewer) ended() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}
