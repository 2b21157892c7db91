package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// message is a line of an execution's stream.
type message struct {
	Type      string
	Text      string
	Name      string
	Value     string
	Traceback string
	HTML      string
	Markdown  string
	SVG       string
	LaTeX     string
	Script    string          `json:"javascript"`
	JSON      json.RawMessage `json:"json"`
	Data      json.RawMessage
	PNG       []byte
	JPEG      []byte
	PDF       []byte
	Chart     chart
	Count     int   `json:"execution_count"`
	Main      bool  `json:"is_main_result"`
	Time      int64 `json:"timestamp"`
}

// chart is a drawing as data.
type chart struct {
	Type     string
	Title    string
	X        string `json:"x_label"`
	Y        string `json:"y_label"`
	Unit     string `json:"y_unit"`
	Scale    string `json:"x_scale"`
	Elements []struct {
		Type, Label, Group string
		Value              float64
		Points             [][]any
		Angle              float64
		Median             float64
		Max                float64
		Outliers           []float64
	}
}

// interpreter runs code like the SDKs: on the interpreter's port, with the sandbox's header.
type interpreter struct {
	*rig.API
	box string
}

func (i interpreter) headers() []string {
	return []string{"E2b-Sandbox-Id", i.box, "E2b-Sandbox-Port", "49999"}
}

func (i interpreter) run(t *testing.T, code string, fields ...any) []message {
	t.Helper()
	body := map[string]any{"code": code}
	for n := 0; n+1 < len(fields); n += 2 {
		body[fields[n].(string)] = fields[n+1]
	}
	ans := i.Want(t, http.StatusOK, http.MethodPost, "/execute", body, i.headers()...)
	if ct := ans.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/x-ndjson") {
		t.Fatalf("Content-Type %q", ct)
	}
	return parse(t, string(ans.Body))
}

func parse(t *testing.T, text string) []message {
	t.Helper()
	var all []message
	for l := range strings.Lines(text) {
		var s message
		if err := json.Unmarshal([]byte(l), &s); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		if s.Type != "keepalive" {
			all = append(all, s)
		}
	}
	if len(all) < 2 || all[0].Type != "number_of_executions" || all[len(all)-1].Type != "end_of_execution" {
		t.Fatalf("an incomplete execution: %s", text)
	}
	return all[1 : len(all)-1]
}

// summarize returns the results of an execution in short form.
func summarize(all []message) string {
	var b strings.Builder
	for _, s := range all {
		switch s.Type {
		case "stdout", "stderr":
			b.WriteString(s.Type[3:] + ":" + s.Text)
		case "result":
			b.WriteString("=" + s.Text + "\n")
		case "error":
			b.WriteString("!" + s.Name + ": " + s.Value + "\n")
		}
	}
	return b.String()
}

func TestInterpreterKeepsWhatCodeDefines(t *testing.T) {
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	for _, tt := range []struct{ language, code, want string }{
		{"", "x = 41\nprint('hi')\nx + 1", "out:hi\n=42\n"},
		{"", "x", "=41\n"},
		{"python", "def f():\n    return 1/0\nf()", "!ZeroDivisionError: division by zero\n"},
		{"python", "import os; os.system('echo child'); None", "out:child\n"},
		{"python", "import asyncio\nawait asyncio.sleep(0)\n'späße'", "=späße\n"},
		{"python", "class A:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'A'\nA()", "=A\n"},
		{"javascript", "let y = 1; console.log('js'); y + 1", "out:js\n=2\n"},
		{"js", "y", "=1\n"},
		{"js", "throw new TypeError('bad')", "!TypeError: bad\n"},
		{"js", "import fs, { existsSync } from 'fs'\nimport * as os from 'node:os'\n[existsSync('/'), fs.existsSync('/nowhere'), typeof os.cpus]", "=[ true, false, 'function' ]\n"},
		{"js", "const net = require('net'); typeof net.connect", "=function\n"},
		{"bash", "z=5; cd /tmp; echo hey", "out:hey\n"},
		{"bash", "echo $z $PWD; false", "out:5 /tmp\n!Exit: exit status 1\n"},
	} {
		var fields []any
		if tt.language != "" {
			fields = []any{"language", tt.language}
		}
		if got := summarize(in.run(t, tt.code, fields...)); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.language, tt.code, got, tt.want)
		}
	}
	if got := summarize(in.run(t, "import os; os.environ['COLOR']", "env_vars", map[string]string{"COLOR": "red"})); got != "=red\n" {
		t.Errorf("env_vars: %q", got)
	}
	if got := summarize(in.run(t, "echo $COLOR $z", "language", "bash", "env_vars", map[string]string{"COLOR": "r'ed"})); got != "out:r'ed 5\n" {
		t.Errorf("env_vars of bash: %q", got)
	}
	if got := summarize(in.run(t, "echo ${COLOR-none}", "language", "bash")); got != "out:none\n" {
		t.Errorf("bash keeps another execution's variable: %q", got)
	}
	html := in.run(t, "A()")
	if len(html) != 1 || html[0].HTML != "<b>" || !html[0].Main {
		t.Errorf("html: %+v", html)
	}
}

// Displayed values are results too; forms that fail are skipped.
func TestInterpreterShows(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	shown := in.run(t, "class P:\n    def _repr_png_(self): return b'\\x89PNG'\n    def _repr_html_(self): raise ValueError\ndisplay(P()); P()")
	if len(shown) != 2 || shown[0].Main || !shown[1].Main || string(shown[0].PNG) != "\x89PNG" || shown[0].HTML != "" {
		t.Errorf("shown %+v", shown)
	}
}

// Each form of a value is returned unchanged.
func TestInterpreterForms(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	all := in.run(t, `class All:
    def _repr_markdown_(self): return '# m'
    def _repr_svg_(self): return '<svg/>'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1, None], 'b': 'ä'}
    def _repr_javascript_(self): return '1'
    def _repr_jpeg_(self): return b'\xff\xd8'
    def _repr_pdf_(self): return b'%PDF'
class DataFrame:
    def to_dict(self, orient): return {'n': [1, float('nan')], ('s', 1): ['a', 'b']}
class Bundle:
    def _repr_mimebundle_(self): return {'text/html': '<i>', 'text/x-other': 'o'}, {}
display(DataFrame(), Bundle())
All()`)
	if len(all) != 3 {
		t.Fatalf("%d results: %+v", len(all), all)
	}
	data, bundle, got := all[0], all[1], all[2]
	if got.Markdown != "# m" || got.SVG != "<svg/>" || got.LaTeX != "$x$" || got.Script != "1" || string(got.JPEG) != "\xff\xd8" || string(got.PDF) != "%PDF" ||
		string(got.JSON) != `{"a":[1,null],"b":"\u00e4"}` || !got.Main || got.HTML != "" {
		t.Errorf("all forms: %+v", got)
	}
	if string(data.Data) != `{"n":[1,null],"('s', 1)":["a","b"]}` || data.Main || bundle.HTML != "<i>" {
		t.Errorf("a table and a bundle: %+v %+v", data, bundle)
	}
}

// A drawing is returned as a picture and as data.
func TestInterpreterCharts(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	if got := summarize(in.run(t, "import matplotlib.pyplot as plt")); got != "" {
		t.Skipf("pictures require python3-matplotlib: %s", got)
	}
	for _, tt := range []struct {
		code string
		want func(c *chart) bool
	}{
		{"plt.plot([1, 2, 3], [2, 4, 1]); plt.title('t'); plt.xlabel('x'); plt.show()", func(c *chart) bool {
			return c.Type == "line" && c.Title == "t" && c.X == "x" && len(c.Elements) == 1 && c.Elements[0].Label == "Line 0" && len(c.Elements[0].Points) == 3 && c.Elements[0].Points[1][1] == 4.0
		}},
		{"plt.scatter([1, 2], [3, 4], label='dots')", func(c *chart) bool {
			return c.Type == "scatter" && len(c.Elements) == 1 && c.Elements[0].Label == "dots" && c.Elements[0].Points[1][1] == 4.0
		}},
		{"plt.plot(['a', 'b', 'c'], [1, 2, 3]); plt.axhline(2); plt.ylabel('speed (m/s)')", func(c *chart) bool {
			return c.Scale == "categorical" && c.Y == "speed (m/s)" && c.Unit == "m/s" && len(c.Elements) == 1 && c.Elements[0].Points[2][0] == "c"
		}},
		{"import datetime as d; plt.plot([d.date(2024, 1, 1), d.date(2024, 1, 2)], [1, 2])", func(c *chart) bool {
			return c.Type == "line" && c.Scale == "datetime" && c.Elements[0].Points[1][0] == "2024-01-02"
		}},
		{"plt.bar(['a', 'b'], [5, 7])", func(c *chart) bool {
			return c.Type == "bar" && len(c.Elements) == 2 && c.Elements[1].Label == "b" && c.Elements[1].Group == "Group 0" && c.Elements[1].Value == 7
		}},
		{"plt.barh(['a', 'b'], [5, 7]); plt.xlabel('n')", func(c *chart) bool {
			return c.Type == "bar" && c.Y == "n" && len(c.Elements) == 2 && c.Elements[1].Label == "b" && c.Elements[1].Value == 7
		}},
		{"plt.boxplot([[1, 2, 3, 4, 40], [5, 6]], patch_artist=True)", func(c *chart) bool {
			return c.Type == "box_and_whisker" && len(c.Elements) == 2 && c.Elements[0].Median == 3 && c.Elements[0].Outliers[0] == 40
		}},
		{"plt.pie([1, 3], labels=['one', 'three'])", func(c *chart) bool {
			return c.Type == "pie" && len(c.Elements) == 2 && c.Elements[1].Label == "three" && c.Elements[1].Angle > 269 && c.Elements[1].Angle < 271
		}},
		{"plt.boxplot([[1, 2, 3, 4, 40], [5, 6]])", func(c *chart) bool {
			return c.Type == "box_and_whisker" && len(c.Elements) == 2 && c.Elements[0].Median == 3 && c.Elements[0].Max == 4 &&
				len(c.Elements[0].Outliers) == 1 && c.Elements[0].Outliers[0] == 40 && c.Elements[1].Label == "2"
		}},
		{"_, (one, two) = plt.subplots(1, 2); one.plot([1, 2]); two.bar(['a'], [1])", func(c *chart) bool {
			return c.Type == "superchart" && len(c.Elements) == 2 && c.Elements[0].Type == "line" && c.Elements[1].Type == "bar"
		}},
	} {
		drawn := in.run(t, tt.code)
		i := slices.IndexFunc(drawn, func(s message) bool { return s.Chart.Type != "" })
		if i < 0 || !strings.HasPrefix(string(drawn[i].PNG), "\x89PNG\r\n") || !tt.want(&drawn[i].Chart) {
			t.Errorf("%s: drawn %+v", tt.code, drawn)
		}
	}
}

// Errors have a traceback, and the kernel continues after each.
func TestInterpreterErrors(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	for _, tt := range []struct{ language, code, name, trace string }{
		{"python", "def f():\n    return [][1]\n\nf()", "IndexError", "line 2, in f"},
		{"python", "1 +", "SyntaxError", "line 1"},
		{"python", "raise SystemExit(3)", "SystemExit", "3"},
		{"python", "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e", "KeyError", "direct cause"},
		{"javascript", "function f() { return undefined.x }\nf()", "TypeError", "at f"},
		{"javascript", "let = ;", "SyntaxError", "SyntaxError"},
		{"bash", "exit 3", "RuntimeError", "code 3"},
		{"bash", "(exit 4)", "Exit", "exit status 4"},
	} {
		got := in.run(t, tt.code, "language", tt.language)
		if len(got) != 1 || got[0].Type != "error" || got[0].Name != tt.name || !strings.Contains(got[0].Traceback, tt.trace) {
			t.Errorf("%s %q: %+v", tt.language, tt.code, got)
		}
		again := map[string]string{"python": "print('on')", "javascript": "console.log('on')", "bash": "echo on"}[tt.language]
		if got := summarize(in.run(t, again, "language", tt.language)); got != "out:on\n" {
			t.Errorf("%s after %q: %q", tt.language, tt.code, got)
		}
	}
}

// Code without output sends keepalives: SDKs and proxies time out without them.
func TestInterpreterSendsKeepalives(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	ans := in.Want(t, http.StatusOK, http.MethodPost, "/execute", map[string]any{"code": "import time; time.sleep(7); 'up'"}, in.headers()...)
	const alive = "{\"type\":\"keepalive\"}\n"
	body := string(ans.Body)
	if !strings.Contains(body, alive) || strings.Contains(body, "\n\n") {
		t.Errorf("received in 7 s:\n%s", body)
	}
	if got := summarize(parse(t, strings.ReplaceAll(body, alive, ""))); got != "=up\n" {
		t.Errorf("its output: %q", got)
	}
}

// A waiting client gets an error when its kernel is killed, and its connection is closed
// when its sandbox is: that is how SDKs detect it.
func TestInterpreterReportsALostKernel(t *testing.T) {
	t.Parallel()
	a := api(t)
	run := func() (interpreter, *rig.Lines) {
		in := interpreter{a, a.Create(t, "timeout", 300).ID}
		r := in.Stream(t, http.MethodPost, "/execute", map[string]any{"code": "import time; print('in', flush=True); time.sleep(100)"}, in.headers()...)
		r.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
		return in, r
	}
	in, r := run()
	a.Want(t, http.StatusOK, http.MethodPost, "/contexts/default-python/restart", nil, in.headers()...)
	rest := r.All(t)
	if n := len(rest); n < 2 || rest[n-2].Type != "error" || !strings.Contains(rest[n-2].Raw, "KernelDied") || rest[n-1].Type != "end_of_execution" {
		t.Errorf("its kernel ended:\n%s", raws(rest))
	}
	in, r = run()
	a.Kill(t, in.box)
	for {
		l, err := r.Next()
		if err == nil && l.Type == "keepalive" {
			continue
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("its sandbox ended: %+v, %v", l, err)
		}
		break
	}
}

// Executions in one context run one after another, and their output is kept apart, also if
// it is long.
func TestInterpreterTakesTurns(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	in.run(t, "n = 0")
	const size = 1 << 20
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			var got strings.Builder
			for _, s := range in.run(t, fmt.Sprintf("m = n; print('%d' * %d); n = m + 1", i, size)) {
				got.WriteString(s.Text)
			}
			if want := strings.Repeat(fmt.Sprint(i), size) + "\n"; got.String() != want {
				t.Errorf("execution %d printed %d bytes: %.40q", i, got.Len(), got.String())
			}
		})
	}
	wg.Wait()
	if got := summarize(in.run(t, "n")); got != "=4\n" {
		t.Errorf("they overlapped: %q", got)
	}
}

func TestInterpreterContexts(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	type context struct{ ID, Language, Cwd string }
	create := func(body map[string]any) (c context) {
		a.Want(t, http.StatusOK, http.MethodPost, "/contexts", body, in.headers()...).Decode(t, &c)
		return c
	}
	one, two := create(map[string]any{"cwd": "/tmp"}), create(map[string]any{"language": "python"})
	if one.ID == "" || one.ID == two.ID || one.Language != "python" || one.Cwd != "/tmp" || two.Cwd != "/home/user" {
		t.Errorf("made %+v, %+v", one, two)
	}
	in.run(t, "v = 'one'", "context_id", one.ID)
	if got := summarize(in.run(t, "import os; os.getcwd(), 'v' in globals()", "context_id", one.ID)); got != "=('/tmp', True)\n" {
		t.Errorf("in one: %q", got)
	}
	if got := summarize(in.run(t, "'v' in globals()", "context_id", two.ID)); got != "=False\n" {
		t.Errorf("in two: %q", got)
	}
	a.Want(t, http.StatusOK, http.MethodPost, "/contexts/"+one.ID+"/restart", nil, in.headers()...)
	if got := summarize(in.run(t, "import os; os.getcwd(), 'v' in globals()", "context_id", one.ID)); got != "=('/tmp', False)\n" {
		t.Errorf("after a restart: %q", got)
	}
	a.Want(t, http.StatusNoContent, http.MethodDelete, "/contexts/"+two.ID, nil, in.headers()...)
	var all []context
	a.Want(t, http.StatusOK, http.MethodGet, "/contexts", nil, in.headers()...).Decode(t, &all)
	defaults := []context{{"default-python", "python", "/home/user"}, {"default-javascript", "javascript", "/home/user"}}
	if !slices.Equal(all, append(defaults, one)) {
		t.Errorf("listed %+v", all)
	}
	if got := summarize(in.run(t, "console.log(1)", "context_id", "default-javascript")); got != "out:1\n" {
		t.Errorf("in a default that was listed: %q", got)
	}
	for _, ans := range []rig.Answer{
		a.Do(t, http.MethodPost, "/execute", map[string]any{"code": "1", "context_id": two.ID}, in.headers()...),
		a.Do(t, http.MethodDelete, "/contexts/nope", nil, in.headers()...),
	} {
		if ans.Status != http.StatusNotFound || !strings.Contains(string(ans.Body), "not found") {
			t.Errorf("unknown context: %v", ans)
		}
	}
	// An execution without a client ends at its timeout or with its kernel.
	busy := map[string]any{"code": "print('in', flush=True)\nwhile True: pass", "context_id": one.ID}
	left := a.Stream(t, http.MethodPost, "/execute", busy, in.headers()...)
	left.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	left.Close()
	a.Want(t, http.StatusOK, http.MethodPost, "/contexts/"+one.ID+"/restart", nil, in.headers()...)
	if got := summarize(in.run(t, "1", "context_id", one.ID)); got != "=1\n" {
		t.Errorf("after a restart of a busy context: %q", got)
	}
	busy["timeout_ms"] = 500
	rest := a.Stream(t, http.MethodPost, "/execute", busy, in.headers()...).All(t)
	if last := rest[len(rest)-1]; last.Type != "end_of_execution" {
		t.Errorf("after its timeout: %+v", rest)
	}
	if got := summarize(in.run(t, "2", "context_id", one.ID)); got != "=2\n" {
		t.Errorf("an execution after the timeout: %q", got)
	}
	a.Want(t, http.StatusBadRequest, http.MethodPost, "/execute", map[string]any{"code": "1", "timeout_ms": -1}, in.headers()...)
	bad := map[string]any{"code": "1", "context_id": one.ID, "language": "python"}
	a.Want(t, http.StatusBadRequest, http.MethodPost, "/execute", bad, in.headers()...)
	a.Want(t, http.StatusBadRequest, http.MethodPost, "/execute", map[string]any{"code": "1", "language": "cobol"}, in.headers()...)
}

// A client that disconnects does not lose the run: its record has all of it.
func TestInterpreterRunOutlivesItsClient(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	code := "import time\nfor i in range(20):\n    print(i)\n    time.sleep(0.05)\n'done'"
	s := a.Stream(t, http.MethodPost, "/execute", map[string]any{"code": code}, in.headers()...)
	s.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	id := s.Header.Get("X-Process-Id")
	s.Close()
	if id == "" {
		t.Fatalf("no process in %v", s.Header)
	}
	lines := a.Events(t, id, "follow=1").All(t)
	all := parse(t, rig.Output(lines, "stdout"))
	if got := strings.ReplaceAll(summarize(all), "out:", ""); strings.Count(got, "\n") != 21 || !strings.HasSuffix(got, "19\n=done\n") {
		t.Errorf("the record has %q", got)
	}
	// Killing an execution's process interrupts it and keeps the kernel.
	s = a.Stream(t, http.MethodPost, "/execute", map[string]any{"code": "print('in', flush=True)\nwhile True: time.sleep(0.1)"}, in.headers()...)
	s.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	a.Want(t, http.StatusOK, http.MethodPost, "/commands/"+s.Header.Get("X-Process-Id")+"/kill", nil, in.headers()...)
	if rest := s.All(t); rest[len(rest)-1].Type != "end_of_execution" {
		t.Errorf("killed: %+v", rest)
	}
	if got := summarize(in.run(t, "i")); got != "=19\n" {
		t.Errorf("after an interrupt: %q", got)
	}
}
