package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

const desktopBody = `{"template":"cua","llm":{"vendor":"anthropic"},"user_id":"you"}`

// buildDesktop makes a template cua of this machine's files. Its Chromium is a script, because the true one takes
// 400 MB and covers the screen; TestRecipes has it.
func buildDesktop(t *testing.T, a *rig.API) {
	t.Helper()
	for _, name := range []string{"Xvfb", "fluxbox", "xdotool", "scrot", "xev", "xsetroot", "xdpyinfo"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	var made struct{ TemplateID, BuildID string }
	a.Want(t, http.StatusAccepted, "POST", "/v3/templates", map[string]any{"name": "cua"}).Decode(t, &made)
	at := "/templates/" + made.TemplateID + "/builds/" + made.BuildID
	const browser = `printf '#!/bin/sh\necho "$@" >>/tmp/browsers\nexec sleep infinity\n' >/usr/local/bin/chromium && chmod 755 /usr/local/bin/chromium`
	a.Want(t, http.StatusAccepted, "POST", "/v2"+at, map[string]any{"fromTemplate": "base", "steps": []any{map[string]any{"type": "RUN", "args": []string{browser, "root"}}}})
	var s buildState
	if !rig.Poll(2*time.Minute, func() bool {
		a.Do(t, "GET", at+"/status", nil).Decode(t, &s)
		return s.Status == "ready" || s.Status == "error"
	}) || s.Status != "ready" {
		t.Fatalf("build: %+v", s)
	}
}

// toolAnswer is a text message about a call.
type toolAnswer struct{ Type, Tool, ID, Error, Message string }

// tell sends a text message.
func (k *talk) tell(text string) {
	k.t.Helper()
	k.ws.SetReadDeadline(time.Now().Add(time.Minute))
	must(k.t, k.ws.WriteMessage(websocket.TextMessage, []byte(text)))
}

// message returns the next message but for positions.
func (k *talk) message() (typ int, raw []byte, err error) {
	for {
		typ, raw, err = k.ws.ReadMessage()
		var f frameOf
		if err != nil || typ == websocket.BinaryMessage || json.Unmarshal(raw, &f) != nil || f.Event != "position" {
			return typ, raw, err
		}
		k.at = f.After
	}
}

// call calls a tool that answers with a text.
func (k *talk) call(text string) (got toolAnswer) {
	k.t.Helper()
	k.tell(text)
	typ, raw, err := k.message()
	must(k.t, err)
	if typ != websocket.TextMessage || json.Unmarshal(raw, &got) != nil {
		k.t.Fatalf("%s: got %d bytes of the type %d", text, len(raw), typ)
	}
	return got
}

// works calls a tool that must be successful.
func (k *talk) works(text string) {
	k.t.Helper()
	if got := k.call(text); got.Type != "desktop_result" {
		k.t.Errorf("%s: %+v", text, got)
	}
}

// screenshot returns a PNG, or the error in its place.
func (k *talk) screenshot() (raw []byte, failed toolAnswer) {
	k.t.Helper()
	k.tell(`{"type":"screenshot"}`)
	typ, raw, err := k.message()
	must(k.t, err)
	if typ == websocket.BinaryMessage {
		return raw, failed
	}
	must(k.t, json.Unmarshal(raw, &failed))
	return nil, failed
}

// plain returns the number of pixels of a color, of a PNG that must have the size of the screen.
func plain(t *testing.T, raw []byte, want color.RGBA) (n int) {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(raw))
	must(t, err)
	if b := img.Bounds(); b.Dx() != 1920 || b.Dy() != 1080 {
		t.Fatalf("the screenshot has the bounds %v", b)
	}
	for y := range 1080 {
		for x := range 1920 {
			if r, g, b, _ := img.At(x, y).RGBA(); r>>8 == uint32(want.R) && g>>8 == uint32(want.G) && b>>8 == uint32(want.B) {
				n++
			}
		}
	}
	return n
}

// TestE2ADesktop uses the desktop of a session over its WebSocket (E-203, E-220, E-222..E-226).
func TestE2ADesktop(t *testing.T) {
	t.Parallel()
	dns := rig.DNS(t, map[string]string{"example.com": "127.0.0.1"})
	s := newTopology(t, rig.Topology{Gateways: 2, HostArgs: []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", dns}})
	buildDesktop(t, s.APIs[0])
	boots(t, s.APIs[0])
	looks(t, s.APIs[0])
	c := converse(t, s.APIs[0], "/v1/sessions", desktopBody, 201)
	k := talkTo(t, s.APIs[0], &c, "?after=")

	if got := k.run("xdpyinfo | grep -E 'dimensions|depth of root'"); !strings.Contains(got, "1920x1080 pixels") || !strings.Contains(got, "24 planes") {
		t.Errorf("xdpyinfo: %q", got)
	}
	k.showsPixels()
	k.usesMouseAndKeyboard()
	k.reportsErrors()
	k.startsPrograms()
	k.survivesXvfb()
	k.measure()
	k.gatewayDies(s, &c)
}

// boots finds the display of a sandbox without a conversation as soon as it is created (E-220, E-221).
func boots(t *testing.T, a *rig.API) {
	t.Helper()
	for _, body := range []string{`{"template":"cua"}`, `{"template":"standard","env_vars":{"CUA_ENABLED":"true"}}`} {
		var vm struct {
			ID string `json:"vm_id"`
		}
		a.Want(t, http.StatusCreated, "POST", "/v1/sandboxes", json.RawMessage(body), "Authorization", "Bearer "+a.Key).Decode(t, &vm)
		run := a.StartStream(t, strings.TrimPrefix(vm.ID, "sbx_"), "DISPLAY=:0 xdpyinfo").All(t)
		if got := run.Stdout(); !strings.Contains(got, "1920x1080 pixels") {
			t.Errorf("%s: xdpyinfo: %q, %s", body, got, run.Out["stderr"])
		}
		a.Want(t, http.StatusNoContent, "DELETE", "/sandboxes/"+strings.TrimPrefix(vm.ID, "sbx_"), nil)
	}
}

// showsPixels compares a screenshot with what is drawn. The toolbar of fluxbox covers the lowest part.
func (k *talk) showsPixels() {
	k.t.Helper()
	n := 0
	if !rig.Poll(time.Minute, func() bool {
		k.run("xsetroot -solid '#12ab34'")
		raw, failed := k.screenshot()
		if raw == nil {
			k.t.Fatalf("%+v", failed)
		}
		n = plain(k.t, raw, color.RGBA{0x12, 0xab, 0x34, 0xff})
		return n >= 1920*1000
	}) {
		k.t.Errorf("%d pixels have the color of the root window", n)
	}
}

// usesMouseAndKeyboard clicks and types into a window, which prints its events.
func (k *talk) usesMouseAndKeyboard() {
	k.t.Helper()
	k.run(`stdbuf -oL xev -geometry 600x400+200+200 >/tmp/events 2>&1 &`)
	k.run(`xdotool search --sync --onlyvisible --name 'Event Tester' >/dev/null`)
	k.works(`{"type":"mouse_move","id":"m","x":300,"y":350}`)
	k.works(`{"type":"mouse_click","x":301,"y":351}`)
	k.works(`{"type":"keyboard_type","text":"aB1"}`)
	k.works(`{"type":"press_key","key":"Enter"}`)
	k.works(`{"type":"press_key","key":"ctrl+c"}`)
	k.works(`{"type":"mouse_click","button":"right","count":2}`)
	k.works(`{"type":"scroll","direction":"down","amount":2}`)
	var lacks []string
	if !rig.Poll(20*time.Second, func() bool {
		events := k.run("cat /tmp/events")
		lacks = nil
		for text, count := range map[string]int{
			"root:(301,351)": 1, "button 1, ": 2, "button 3, ": 4, "button 5, ": 4, " a), ": 1, " B), ": 1, " 1), ": 1, " Return), ": 2, " c), ": 2, " Control_L), ": 2,
		} {
			if strings.Count(events, text) < count {
				lacks = append(lacks, text)
			}
		}
		return len(lacks) == 0
	}) {
		k.t.Errorf("events without %q in %s", lacks, k.run("tail -c 3000 /tmp/events"))
	}
	// No key has this character: one is mapped to it for a moment, in which a busy program may miss it.
	if !rig.Poll(20*time.Second, func() bool {
		k.works(`{"type":"keyboard_type","text":"é"}`)
		return strings.Contains(k.run("cat /tmp/events"), " eacute), ")
	}) {
		k.t.Error("no event has the character é")
	}
}

// reportsErrors makes calls that cannot succeed.
func (k *talk) reportsErrors() {
	k.t.Helper()
	for text, want := range map[string]toolAnswer{
		`{"type":"mouse_move","id":"7","x":1920,"y":0}`: {"desktop_error", "mouse_move", "7", "invalid_argument", ""},
		`{"type":"press_key","key":"nosuch"}`:           {"desktop_error", "press_key", "", "invalid_argument", ""},
		`{"type":"shell_exec"}`:                         {"desktop_error", "shell_exec", "", "invalid_argument", ""},
		`{"type":"locate_element","query":"OK"}`:        {"desktop_error", "locate_element", "", "locator_unavailable", ""},
	} {
		got := k.call(text)
		if got.Message == "" {
			k.t.Errorf("%s: no message", text)
		}
		if got.Message = ""; got != want {
			k.t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
	k.tell(`{"type":"shell_exec","command":"echo $((6*7))"}`)
	f, err := k.read()
	if must(k.t, err); f.Data != "42\n" {
		k.t.Errorf("shell_exec: %+v", f)
	}
	if f, err = k.read(); err != nil || f.Type != "exit" {
		k.t.Errorf("shell_exec: %+v, %v", f, err)
	}
}

// startsPrograms looks for the window manager and the browser.
func (k *talk) startsPrograms() {
	k.t.Helper()
	const ids = `pidof fluxbox && grep -c -- '--window-size=1920,1080 .*about:blank' /tmp/browsers`
	if !rig.Poll(20*time.Second, func() bool { return strings.HasSuffix(k.run(ids), "\n1\n") }) {
		k.t.Errorf("got %q", k.run(ids))
	}
}

// survivesXvfb kills the server. Until another one runs, calls have a clear error.
func (k *talk) survivesXvfb() {
	k.t.Helper()
	const server = "pidof Xvfb"
	old := k.run(server)
	k.run("kill -9 " + old)
	if !rig.Poll(time.Minute, func() bool {
		raw, failed := k.screenshot()
		if raw == nil {
			if failed.Error != "display_unavailable" || failed.Message == "" {
				k.t.Errorf("got %+v", failed)
			}
			return false
		}
		plain(k.t, raw, color.RGBA{})
		return true
	}) {
		k.t.Fatal("the display did not return")
	}
	if now := k.run(server); now == old || now == "" {
		k.t.Errorf("the server has the process id %q, was %q", now, old)
	}
	if !rig.Poll(20*time.Second, func() bool { return strings.Count(k.run("cat /tmp/browsers"), "\n") == 2 }) {
		k.t.Error("the browser was not started again")
	}
}

// measure logs the time of screenshots at a gateway.
func (k *talk) measure() {
	k.t.Helper()
	const n = 20
	times, size, begun := make([]time.Duration, n), 0, time.Now()
	for i := range times {
		at := time.Now()
		raw, failed := k.screenshot()
		if raw == nil {
			k.t.Fatalf("%+v", failed)
		}
		times[i], size = time.Since(at), len(raw)
	}
	all := time.Since(begun)
	slices.Sort(times)
	k.t.Logf("screenshots of %d bytes: p50 %v, p95 %v, %.1f/s", size, times[n/2].Round(time.Millisecond), times[n-1].Round(time.Millisecond), n/all.Seconds())
}

// gatewayDies kills the gateway between a call and its answer: the other one delivers that answer once.
func (k *talk) gatewayDies(s *rig.Split, c *conversation) {
	k.t.Helper()
	for k.run("cat /dev/null"); k.at == ""; {
		_, _, err := k.message()
		must(k.t, err)
	}
	// A slow capture of known bytes.
	k.run(`mkdir -p /tmp/bin; printf '#!/bin/sh\nsleep 1; head -c 3000000 /dev/urandom | tee /tmp/captured' >/tmp/bin/scrot; chmod 755 /tmp/bin/scrot; cp /tmp/bin/scrot /usr/local/bin/ || sudo -n cp /tmp/bin/scrot /usr/local/bin/`)
	k.tell(`{"type":"screenshot"}`)
	k.tell(`{"type":"exec","id":"x","command":"while ! pidof -x scrot; do :; done"}`) // its exit is the sign that the capture runs
	for {
		f, err := k.read()
		must(k.t, err)
		if f.Type == "exit" {
			break
		}
	}
	at := k.at
	s.Program("gateway-1").Kill9()
	defer func() { must(k.t, s.RestartProgram("gateway-1")) }()
	next := talkTo(k.t, s.APIs[1], c, "?after="+at)
	var images [][32]byte
	next.tell(`{"type":"mouse_move","x":1,"y":1}`) // calls are answered in order
	for {
		typ, raw, err := next.message()
		must(k.t, err)
		if typ == websocket.BinaryMessage {
			images = append(images, sha256.Sum256(raw))
			continue
		}
		if strings.Contains(string(raw), "mouse_move") {
			break
		}
	}
	sum := strings.Fields(next.run("sha256sum /tmp/captured"))
	if len(images) != 1 || len(sum) == 0 || fmt.Sprintf("%x", images[0]) != sum[0] {
		k.t.Errorf("got %d images %x, want %q", len(images), images, sum)
	}
}

// A session without a desktop gets an error for its calls, and no binary message.
func TestE2ADesktopNeedsItsTemplate(t *testing.T) {
	t.Parallel()
	u := sharedUp(t)
	c := converse(t, u.API, "/v1/sessions", conversationBody, 201)
	k := talkTo(t, u.API, &c, "")
	for _, tool := range []string{"screenshot", "mouse_move", "shell_exec"} {
		if got := k.call(`{"type":"` + tool + `","id":"1"}`); got.Type != "desktop_error" || got.Error != "cua_disabled" || got.ID != "1" {
			t.Errorf("%s: %+v", tool, got)
		}
	}
}

// browses opens a page in the Chromium of a session, by mouse and keyboard (E-220).
func browses(t *testing.T, a *rig.API) {
	c := converse(t, a, "/v1/sessions", desktopBody, 201)
	k := talkTo(t, a, &c, "")
	k.run(drawn)
	k.run("timeout 45 xdotool search --sync --onlyvisible --class chromium >/dev/null")
	n := 0
	if !rig.Poll(3*time.Minute, func() bool {
		k.works(`{"type":"press_key","key":"ctrl+l"}`)
		k.works(`{"type":"keyboard_type","text":"file:///tmp/p.html"}`)
		k.works(`{"type":"press_key","key":"Enter"}`)
		raw, failed := k.screenshot()
		if raw == nil {
			t.Fatalf("%+v", failed)
		}
		n = plain(t, raw, color.RGBA{0xff, 0xaa, 0, 0xff})
		return n >= 100_000
	}) {
		t.Errorf("%d pixels have the color of the drawing", n)
	}
	k.measure()
}
