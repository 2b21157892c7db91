package desktop_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/desktop"
)

var lastDisplay atomic.Int64 // of this process

// rig is a desktop whose programs are scripts of the test.
type rig struct {
	t       *testing.T
	dir     string // of its programs, and of what they record
	display string
	env     map[string]string
	*desktop.Desktop
}

// newRig returns a desktop whose display accepts connections if up, and does not have Xvfb.
func newRig(t *testing.T, up bool) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), env: map[string]string{}}
	t.Setenv("PATH", r.dir) // only where programs are looked up
	r.display = ":" + strconv.Itoa(20000+os.Getpid()%20000+int(lastDisplay.Add(1)))
	if up {
		os.Mkdir("/tmp/.X11-unix", 0o777|os.ModeSticky)
		ln, err := net.Listen("unix", "/tmp/.X11-unix/X"+r.display[1:])
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { ln.Close() })
	}
	r.Desktop = desktop.New(desktop.Config{
		Environ: []string{"PATH=/usr/bin:/bin", "DIR=" + r.dir, "HOME=" + r.dir, "DISPLAY=" + r.display},
		Setting: func(name string) string { return r.env[name] }, Log: func(err error) { t.Log(err) },
	})
	t.Cleanup(r.Stop)
	return r
}

// program adds a program.
func (r *rig) program(name, script string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// fails checks the code of a call's error and returns its message.
func (r *rig) fails(tool, arguments, code string) string {
	r.t.Helper()
	_, err := r.Do(r.t.Context(), tool, []byte(arguments))
	if err == nil || kind.Code(err) != code {
		r.t.Errorf("%s %s: %v, want %s", tool, arguments, err, code)
		return ""
	}
	return kind.Message(err)
}

// E-226: the PNG is what the program printed, byte for byte.
func TestAScreenshotIsNotAltered(t *testing.T) {
	r := newRig(t, true)
	r.program("scrot", `head -c 3000000 /dev/urandom | tee "$DIR/printed"`)
	got, err := r.Do(t.Context(), "screenshot", []byte(`{}`))
	want, _ := os.ReadFile(filepath.Join(r.dir, "printed"))
	if err != nil || len(want) != 3_000_000 || sha256.Sum256(got.PNG) != sha256.Sum256(want) {
		t.Errorf("got %d bytes, %v; want the %d that were printed", len(got.PNG), err, len(want))
	}
}

// E-222, E-224: each call becomes one run of xdotool on the display.
func TestCallsBecomeCommandsOfXdotool(t *testing.T) {
	r := newRig(t, true)
	r.program("xdotool", `echo "$DISPLAY $*" >"$DIR/args"; cat >"$DIR/stdin"`)
	for _, tt := range []struct{ tool, arguments, args, stdin string }{
		{"mouse_move", `{"x":3,"y":1079}`, "mousemove 3 1079", ""},
		{"mouse_click", `{"x":0,"y":0}`, "mousemove 0 0 click --repeat 1 --delay 40 1", ""},
		{"mouse_click", `{"button":"right","count":2}`, "click --repeat 2 --delay 40 3", ""},
		{"scroll", `{"direction":"down","x":9,"y":8}`, "mousemove 9 8 click --repeat 3 --delay 10 5", ""},
		{"scroll", `{"direction":"left","amount":7}`, "click --repeat 7 --delay 10 6", ""},
		{"keyboard_type", `{"text":"-a 'b'\n$c"}`, "type --delay 4 --file -", "-a 'b'\n$c"},
		{"keyboard_type", `{"text":"é"}`, "type --delay 60 --file -", "é"},
		{"press_key", `{"key":"Enter"}`, "key -- Return", ""},
		{"press_key", `{"key":"Control+Shift+t"}`, "key -- ctrl+Shift+t", ""},
	} {
		if got, err := r.Do(t.Context(), tt.tool, []byte(tt.arguments)); err != nil || got.PNG != nil {
			t.Errorf("%s %s: %v", tt.tool, tt.arguments, err)
			continue
		}
		args, _ := os.ReadFile(filepath.Join(r.dir, "args"))
		stdin, _ := os.ReadFile(filepath.Join(r.dir, "stdin"))
		if string(args) != r.display+" "+tt.args+"\n" || string(stdin) != tt.stdin {
			t.Errorf("%s %s: got %q with the input %q", tt.tool, tt.arguments, args, stdin)
		}
	}
}

func TestWrongArgumentsStartNoProgram(t *testing.T) {
	r := newRig(t, true)
	r.program("xdotool", `touch "$DIR/started"`)
	for _, tt := range []struct{ tool, arguments string }{
		{"mouse_move", `{}`},
		{"mouse_move", `{"x":1}`},
		{"mouse_move", `{"x":"1","y":2}`},
		{"mouse_move", `{"x":1920,"y":0}`},
		{"mouse_move", `{"x":0,"y":-1}`},
		{"mouse_click", `{"y":1}`},
		{"mouse_click", `{"button":"4"}`},
		{"mouse_click", `{"count":0}`},
		{"mouse_click", `{"count":4}`},
		{"scroll", `{}`},
		{"scroll", `{"direction":"down","amount":101}`},
		{"keyboard_type", `{}`},
		{"keyboard_type", `{"text":"a\u0000"}`},
		{"keyboard_type", `{"text":"` + strings.Repeat("x", 4097) + `"}`},
		{"press_key", `{"key":""}`},
		{"press_key", `{"key":"--window 3"}`},
		{"press_key", `[]`},
		{"other", `{}`},
	} {
		r.fails(tt.tool, tt.arguments, "invalid_argument")
	}
	if _, err := os.Stat(filepath.Join(r.dir, "started")); err == nil {
		t.Error("a program was started")
	}
}

func TestErrorsHaveCodes(t *testing.T) {
	r := newRig(t, true)
	if got := r.fails("screenshot", `{}`, "program_missing"); !strings.Contains(got, "scrot") {
		t.Error(got)
	}
	r.program("scrot", "echo no memory >&2; exit 1")
	if got := r.fails("screenshot", `{}`, "tool_failed"); !strings.Contains(got, "no memory") {
		t.Error(got)
	}
	r.program("xdotool", "echo \"(symbol) No such key name 'nosuch'. Ignoring it.\" >&2")
	if got := r.fails("press_key", `{"key":"nosuch"}`, "invalid_argument"); !strings.Contains(got, "nosuch") {
		t.Error(got)
	}
	if got := newRig(t, false).fails("screenshot", `{}`, "display_unavailable"); !strings.Contains(got, "Xvfb is not installed") {
		t.Error(got)
	}
}

// E-220: a server that ends is started again, with its programs; a call waits for it.
func TestTheDisplayIsSupervised(t *testing.T) {
	r := newRig(t, false)
	r.program("Xvfb", `echo "$*" >>"$DIR/servers"; echo $$ >"$DIR/pid"; echo 1 >&3; exec sleep 1000`)
	r.program("fluxbox", `echo "$DISPLAY" >>"$DIR/managers"; exec sleep 1000`)
	r.program("chromium", `echo "$*" >>"$DIR/browsers"; exec sleep 1000`)
	r.program("scrot", `if test -e "$DIR/dies"; then rm "$DIR/dies"; kill -9 "$(cat "$DIR/pid")"; exit 1; fi; echo image`)
	shoot := func() (desktop.Result, error) { return r.Do(t.Context(), "screenshot", []byte(`{}`)) }
	if got, err := shoot(); err != nil || string(got.PNG) != "image\n" {
		t.Fatal(got, err)
	}
	started := func(n int) {
		for _, name := range []string{"servers", "managers", "browsers"} {
			r.await(name, func(text string) bool { return strings.Count(text, "\n") >= n })
		}
	}
	started(1)
	if err := os.WriteFile(filepath.Join(r.dir, "dies"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.fails("screenshot", `{}`, "display_unavailable")
	r.await("servers", func(text string) bool { // its end may be noticed later than that of the program
		got, err := shoot()
		if err == nil && string(got.PNG) != "image\n" {
			t.Error(got)
		}
		return err == nil && strings.Count(text, "-screen 0 1920x1080x24") >= 2
	})
	started(2)
}

// await waits until what programs recorded in a file is done.
func (r *rig) await(name string, done func(text string) bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); ; {
		text, _ := os.ReadFile(filepath.Join(r.dir, name))
		if done(string(text)) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			r.t.Fatalf("%s has %q", name, text)
		}
	}
}

// E-225: the address of OmniParser is configurable, and its absence is an error.
func TestElementsAreLocated(t *testing.T) {
	r := newRig(t, true)
	if _, err := os.Stat("/usr/bin/curl"); err != nil {
		t.Skip("curl is not installed")
	}
	r.program("curl", `exec /usr/bin/curl "$@"`)
	r.program("scrot", "printf image")
	r.env["OMNIPARSER_URL"] = "http://127.0.0.1:1"
	if got := r.fails("locate_element", `{"query":"ok"}`, "locator_unavailable"); !strings.Contains(got, "http://127.0.0.1:1") {
		t.Error(got)
	}
	r.env["OMNIPARSER_URL"] = "file:///etc"
	r.fails("locate_element", `{}`, "locator_unavailable")
	answer := `{"parsed_content_list":[{"type":"text","bbox":[0.5,0.5,0.75,1],"interactivity":false,"content":"The OK"},{"type":"icon","bbox":[0,0,0.1,0.1],"interactivity":true,"content":null}]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var body struct {
			Image []byte `json:"base64_image"`
		}
		if raw, err := io.ReadAll(req.Body); err != nil || json.Unmarshal(raw, &body) != nil || string(body.Image) != "image" || req.URL.Path != "/parse/" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	r.env["OMNIPARSER_URL"] = s.URL + "/"
	got, err := r.Do(t.Context(), "locate_element", []byte(`{"query":"ok"}`))
	want := desktop.Element{Kind: "text", Content: "The OK", X: 1200, Y: 810, Box: [4]int{960, 540, 1440, 1080}}
	if err != nil || len(got.Elements) != 1 || got.Elements[0] != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := r.Do(t.Context(), "locate_element", []byte(`{}`)); err != nil || len(got.Elements) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := r.Do(t.Context(), "locate_element", []byte(`{"query":"absent"}`)); err != nil || got.Elements == nil || len(got.Elements) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	answer = "{}"
	r.fails("locate_element", `{}`, "locator_failed")
}
