package convruntime_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/services/hostd/internal/convruntime"
	"github.com/millrace/millrace/services/hostd/internal/deictic"
)

// The test binary is the program that it tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bootstrap.Arg {
		os.Exit(convruntime.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == bootstrap.AgentArg {
		os.Exit(deictic.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// program is the environment of the processes of one test.
type program struct {
	t   testing.TB
	id  string
	dir string // its configuration

	home string // of all processes; empty: a new one for each
}

func newProgram(t testing.TB) *program {
	t.Helper()
	p := &program{t: t, id: fmt.Sprintf("test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))}
	p.dir = bootstrap.SharedDirectory(p.id)
	if info, err := os.Stat(filepath.Dir(p.dir)); err != nil || !info.IsDir() {
		t.Skip("this machine has no /dev/shm")
	}
	t.Cleanup(func() { os.RemoveAll(p.dir) })
	return p
}

func (p *program) command(args []string, env map[string]string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "MILLRACE_SANDBOX_ID="+p.id, "OWN=of the sandbox")
	if p.home == "" {
		cmd.Env = append(cmd.Env, "HOME="+p.t.TempDir())
	} else {
		cmd.Env = append(cmd.Env, "HOME="+p.home)
	}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stderr = os.Stderr
	return cmd
}

// update replaces the configuration.
func (p *program) update(c bootstrap.Config, set string) {
	p.t.Helper()
	for _, spec := range bootstrap.Update(c, set) {
		if err := p.command(spec.Args, spec.Env).Run(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// conversation is a running runtime.
type conversation struct {
	t      testing.TB
	in     io.WriteCloser
	out    io.Reader
	cmd    *exec.Cmd
	ready  frame.Ready
	frames chan frame.Frame
}

// start starts a runtime and waits until it is ready.
func (p *program) start(c bootstrap.Config) *conversation {
	p.t.Helper()
	specs := bootstrap.Start(c, "first")
	for _, spec := range specs[:len(specs)-1] {
		if err := p.command(spec.Args, spec.Env).Run(); err != nil {
			p.t.Fatal(err)
		}
	}
	last := specs[len(specs)-1]
	cmd := p.command(last.Args, last.Env)
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	v := &conversation{t: p.t, in: in, out: out, cmd: cmd, frames: make(chan frame.Frame)}
	go v.read()
	p.t.Cleanup(v.end)
	m := v.control()
	if m.Ready == nil {
		p.t.Fatalf("the first frame is %+v", m)
	}
	v.ready = *m.Ready
	return v
}

func (v *conversation) read() {
	defer close(v.frames)
	d := frame.NewDecoder(frame.MaxFromRuntime)
	buf := make([]byte, 64<<10)
	for {
		n, err := v.out.Read(buf)
		for f, ferr := range d.Feed(buf[:n]) {
			if ferr != nil {
				v.t.Error(ferr)
			}
			f.Payload = bytes.Clone(f.Payload)
			v.frames <- f
		}
		if err != nil {
			return
		}
	}
}

// end closes the input, which ends the runtime, and reads what it still sends.
func (v *conversation) end() {
	v.in.Close()
	for range v.frames {
	}
	if err := v.cmd.Wait(); err != nil {
		v.t.Errorf("the runtime ended: %v", err)
	}
}

func (v *conversation) send(k frame.Kind, payload string) {
	v.t.Helper()
	if _, err := v.in.Write(frame.Append(nil, k, []byte(payload))); err != nil {
		v.t.Fatal(err)
	}
}

func (v *conversation) tell(m frame.Message) {
	v.t.Helper()
	if _, err := v.in.Write(frame.AppendMessage(nil, m)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *conversation) next(want frame.Kind) string {
	v.t.Helper()
	f, ok := <-v.frames
	if !ok || f.Kind != want {
		v.t.Fatalf("got frame %d %q (%v), want kind %d", f.Kind, f.Payload, ok, want)
	}
	return string(f.Payload)
}

func (v *conversation) control() frame.Message {
	v.t.Helper()
	m, err := frame.ParseMessage([]byte(v.next(frame.Control)))
	if err != nil {
		v.t.Fatal(err)
	}
	return m
}

// result is what a command printed, by its id, and how it ended.
type result struct {
	Type, Data string
	ID         any
	Code       *int `json:"exit_code"`
}

// exec runs a command and returns its output and exit code.
func (v *conversation) exec(line string) (string, int) {
	v.t.Helper()
	b, err := json.Marshal(map[string]string{"type": "exec", "command": line})
	if err != nil {
		v.t.Fatal(err)
	}
	v.send(frame.Text, string(b))
	var out strings.Builder
	for {
		r := v.result()
		if r.Type == "exit" {
			return out.String(), *r.Code
		}
		out.WriteString(r.Data)
	}
}

func (v *conversation) result() (r result) {
	v.t.Helper()
	text := v.next(frame.Text)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		v.t.Fatalf("%q: %v", text, err)
	}
	if r.Type != "stdout" && (r.Type != "exit" || r.Code == nil) {
		v.t.Fatalf("got %q", text)
	}
	return r
}

// E-201: text frames that are not commands survive byte for byte, whatever they contain.
func TestOtherTextFramesAreEchoed(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	for _, text := range []string{
		"", " ", "{ \"type\" :\t\"exec\" }", `{"type":"exec","command":7}`, `{"type":"exec","command":"x"`, "\x00\xff not JSON \x00",
		`{"type":"other","command":"ls"}`, `[{"type":"exec"}]`, `{"b":1,"a":2,"b":3}`, strings.Repeat("x", frame.MaxFromClient),
		`{"type":"exec","id":{"a":1},"command":"ls"}`, `{"type":"exec","id":"` + strings.Repeat("x", 300) + `","command":"ls"}`,
	} {
		v.send(frame.Text, text)
		if got := v.next(frame.Text); got != text {
			t.Errorf("%.60q was echoed as %.60q", text, got)
		}
	}
}

// E-202
func TestCommandsPrintAndExit(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	for _, tt := range []struct {
		line, out string
		code      int
	}{
		{"echo one; echo two >&2; echo three", "one\ntwo\nthree\n", 0},
		{"exit 7", "", 7},
		{"kill -9 $$", "", 128 + 9},
		{"cat; pwd | grep -c .", "1\n", 0},
		{"sleep 1000 >/dev/null 2>&1 & echo left", "left\n", 0},
		{`printf 'a\377b<&>\342\202\254'`, "a\ufffdb<&>€", 0},
		{"echo $OWN", "of the sandbox\n", 0},
		{"ulimit -c", "0\n", 0},
	} {
		if out, code := v.exec(tt.line); out != tt.out || code != tt.code {
			t.Errorf("%s: got %q, %d; want %q, %d", tt.line, out, code, tt.out, tt.code)
		}
	}
	if out, code := v.exec("no-such-program"); code != 127 || !strings.Contains(out, "not found") {
		t.Errorf("got %q, %d", out, code)
	}
}

// The frames of a command are a documented format.
func TestFramesOfACommand(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	v.send(frame.Text, `{"type":"exec","id":"a\u00e9","command":"echo '<\"'; exit 3"}`)
	for _, want := range []string{`{"type":"stdout","id":"a\u00e9","data":"<\"\n"}`, `{"type":"exit","id":"a\u00e9","exit_code":3}`} {
		if got := v.next(frame.Text); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	v.send(frame.Text, `{"type":"exec","command":"echo x"}`)
	for _, want := range []string{`{"type":"stdout","data":"x\n"}`, `{"type":"exit","exit_code":0}`} {
		if got := v.next(frame.Text); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Output has no end that a frame cuts through a character, and none of it is lost.
func TestLargeOutputArrivesComplete(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	line := strings.Repeat("€", 33)
	out, code := v.exec(`i=0; while [ $i -lt 20000 ]; do echo ` + line + `; i=$((i+1)); done`)
	if want := strings.Repeat(line+"\n", 20000); out != want || code != 0 {
		t.Errorf("got %d bytes, %d; want %d", len(out), code, len(want))
	}
}

// Commands without an id run in order, those with one concurrently, and frames are handled meanwhile.
func TestCommandsAndFramesRunConcurrently(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	v.send(frame.Text, `{"type":"exec","command":"cat `+fifo+`; echo first"}`)
	v.send(frame.Text, `{"type":"exec","command":"echo second"}`)
	v.send(frame.Text, `{"type":"exec","id":1,"command":"cat `+fifo+`2"}`)
	v.send(frame.Text, "ping")
	var all string
	for !strings.Contains(all, "ping") || !strings.Contains(all, `{"type":"exit","id":1,"exit_code":1}`) { // fifo2 does not exist
		all += v.next(frame.Text)
	}
	if strings.Contains(all, "second") {
		t.Errorf("got %s", all)
	}
	if err := os.WriteFile(fifo, []byte("go "), 0); err != nil {
		t.Fatal(err)
	}
	var out string
	for ends := 0; ends < 2; {
		r := v.result()
		if out += r.Data; r.Type == "exit" {
			ends++
		}
	}
	if out != "go first\nsecond\n" {
		t.Errorf("got %q", out)
	}
}

// E-010, E-324, E-325, E-332: commands have the values of bundles, an update replaces all of them, and the
// platform's values take precedence.
func TestUpdatesReplaceTheConfiguration(t *testing.T) {
	p := newProgram(t)
	platform := map[string]string{"SESSION_ID": "ses_1"}
	v := p.start(bootstrap.Config{Secrets: map[string]string{"LLM_API_KEY": "one", "OLD": "x", "SESSION_ID": "theirs", "OWN": "of a bundle"}, Platform: platform})
	show := `echo $LLM_API_KEY,$OLD,$NEW,$SESSION_ID,$OWN`
	if out, _ := v.exec(show); out != "one,x,,ses_1,of a bundle\n" {
		t.Errorf("got %q", out)
	}
	large := bootstrap.Config{Secrets: map[string]string{"LLM_API_KEY": "two", "NEW": "y"}, Platform: platform}
	for i := range 40 {
		large.Secrets[fmt.Sprintf("K%d", i)] = strings.Repeat("<", 64<<10)
	}
	p.update(large, "g2")
	if out, _ := v.exec(show + `; printf %s $K39 | wc -c`); out != "two,,y,ses_1,of the sandbox\n65536\n" {
		t.Errorf("got %q", out)
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, "env.json"))
	var values map[string]string
	if err != nil || json.Unmarshal(raw, &values) != nil || len(values) != 43 || values["LLM_API_KEY"] != "two" {
		t.Errorf("env.json has %d values (%v)", len(values), err)
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v (%v)", entries, err)
	}
	if info, err := os.Stat(filepath.Join(p.dir, "env.json")); err != nil || info.Mode() != 0o600 {
		t.Errorf("env.json: %v, %v", info.Mode(), err)
	}
}

// E-010: a configuration that is too large for one process.
func TestLargeConfigurationsArriveComplete(t *testing.T) {
	c := bootstrap.Config{Secrets: map[string]string{}}
	for i := range 50 {
		c.Secrets[fmt.Sprintf("K%d", i)] = strings.Repeat("v", 64<<10)
	}
	v := newProgram(t).start(c)
	if out, code := v.exec(`printf %s $K0$K49 | wc -c`); strings.TrimSpace(out) != "131072" {
		t.Errorf("got %q, %d", out, code)
	}
}

// E-198, E-199: a client's token is in upgrade.json, and opens the port as long as the client is attached.
func TestTheTokenOfTheCurrentClientOpensThePort(t *testing.T) {
	p := newProgram(t)
	v := p.start(bootstrap.Config{})
	ask := func(token string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", v.ready.Port), nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		return resp.StatusCode
	}
	attach := func(id, token string) {
		t.Helper()
		v.tell(frame.Message{Attach: &frame.Attach{ID: id, Token: token, URL: "ws://runtime/?token=" + token}})
		if m := v.control(); m.Attached != id {
			t.Errorf("got %+v", m)
		}
	}
	check := func(token string, want int) {
		t.Helper()
		if got := ask(token); got != want {
			t.Errorf("token %q: %d, want %d", token, got, want)
		}
	}
	check("", 401)
	check("t1", 401)
	attach("a", "t1")
	check("t1", 200)
	check("", 401)
	attach("b", "t2")
	check("t1", 401)
	v.tell(frame.Message{Detach: &frame.Detach{ID: "a"}}) // of a client that was replaced: no effect
	raw, err := os.ReadFile(filepath.Join(p.dir, "upgrade.json"))
	if want := `{"id":"b","token":"t2","url":"ws://runtime/?token=t2","cua":false}` + "\n"; err != nil || string(raw) != want {
		t.Errorf("got %s, %v", raw, err)
	}
	v.tell(frame.Message{Detach: &frame.Detach{ID: "b"}})
	v.send(frame.Text, "after")
	v.next(frame.Text)
	check("t2", 401)
	if _, err := os.Stat(filepath.Join(p.dir, "upgrade.json")); err == nil {
		t.Error("upgrade.json outlives its client")
	}
}

// E-203, E-204: binary frames are for clients that may receive them only, and unaltered.
func TestBinaryFramesNeedAClientForThem(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	image := "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00\xff", 100_000)
	v.send(frame.Binary, image)
	v.tell(frame.Message{Attach: &frame.Attach{ID: "a", CUA: true}})
	v.control()
	v.send(frame.Binary, image)
	if got := v.next(frame.Binary); got != image {
		t.Errorf("got %d bytes", len(got))
	}
}

// A slow reader blocks commands; they end when it reads again, with nothing lost.
func TestASlowReaderBlocksCommands(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	file := filepath.Join(t.TempDir(), "done")
	v.send(frame.Text, `{"type":"exec","command":"head -c 4000000 /dev/zero | tr '\\0' x; echo done > `+file+`"}`)
	v.result() // it runs; from here on the test reads nothing until the pipes are full
	for range 3 {
		v.send(frame.Text, `{"type":"exec","id":1,"command":"true"}`)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("4 MB of output fit into pipes")
	}
	n, ends := 0, 0
	for ends < 4 {
		r := v.result()
		if n += len(r.Data); r.Type == "exit" {
			ends++
		}
	}
	if n == 0 || n >= 4_000_000 { // the first piece was read above
		t.Errorf("got %d bytes", n)
	}
}

func TestMalformedFramesDoNotEndTheRuntime(t *testing.T) {
	v := newProgram(t).start(bootstrap.Config{})
	if _, err := v.in.Write([]byte("\x09\x01abc\x00\x03\x03{\x00")); err != nil {
		t.Fatal(err)
	}
	v.send(frame.Text, "still here")
	if got := v.next(frame.Text); got != "still here" {
		t.Errorf("got %q", got)
	}
}

func BenchmarkEcho(b *testing.B) {
	v := newProgram(b).start(bootstrap.Config{})
	text := `{"type":"user","text":"hello"}`
	b.ReportAllocs()
	for b.Loop() {
		v.send(frame.Text, text)
		v.next(frame.Text)
	}
}
