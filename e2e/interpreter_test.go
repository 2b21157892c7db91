package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// said is a line of an execution.
type said struct {
	Type      string
	Text      string
	Name      string
	Value     string
	Traceback string
	HTML      string
	PNG       []byte
	Chart     struct {
		Type     string
		Title    string
		Elements []struct{ Points [][]float64 }
	}
	Count int   `json:"execution_count"`
	Main  bool  `json:"is_main_result"`
	Time  int64 `json:"timestamp"`
}

// interpreter runs code as SDKs ask for it: on its port, with the sandbox's header.
type interpreter struct {
	*rig.API
	box string
}

func (i interpreter) headers() []string {
	return []string{"E2b-Sandbox-Id", i.box, "E2b-Sandbox-Port", "49999"}
}

func (i interpreter) run(t *testing.T, code string, fields ...any) []said {
	t.Helper()
	body := map[string]any{"code": code}
	for n := 0; n+1 < len(fields); n += 2 {
		body[fields[n].(string)] = fields[n+1] //nolint:forcetypeassert // a test's own
	}
	ans := i.Want(t, http.StatusOK, http.MethodPost, "/execute", body, i.headers()...)
	if ct := ans.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/x-ndjson") {
		t.Fatalf("Content-Type %q", ct)
	}
	return parse(t, string(ans.Body))
}

func parse(t *testing.T, text string) []said {
	t.Helper()
	var all []said
	for l := range strings.Lines(text) {
		var s said
		if err := json.Unmarshal([]byte(l), &s); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		all = append(all, s)
	}
	if len(all) < 2 || all[0].Type != "number_of_executions" || all[len(all)-1].Type != "end_of_execution" {
		t.Fatalf("not a whole execution: %s", text)
	}
	return all[1 : len(all)-1]
}

// brief is what an execution said, in short.
func brief(all []said) string {
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
		{"python", "import asyncio\nawait asyncio.sleep(0)\n'späße'", "='späße'\n"},
		{"python", "class A:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'A'\nA()", "=A\n"},
		{"javascript", "let y = 1; console.log('js'); y + 1", "out:js\n=2\n"},
		{"js", "y", "=1\n"},
		{"js", "throw new TypeError('bad')", "!TypeError: bad\n"},
		{"bash", "z=5; cd /tmp; echo hey", "out:hey\n"},
		{"bash", "echo $z $PWD; false", "out:5 /tmp\n!Exit: exit status 1\n"},
	} {
		var fields []any
		if tt.language != "" {
			fields = []any{"language", tt.language}
		}
		if got := brief(in.run(t, tt.code, fields...)); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.language, tt.code, got, tt.want)
		}
	}
	if got := brief(in.run(t, "import os; os.environ['COLOUR']", "env_vars", map[string]string{"COLOUR": "red"})); got != "='red'\n" {
		t.Errorf("env_vars: %q", got)
	}
	html := in.run(t, "A()")
	if len(html) != 1 || html[0].HTML != "<b>" || !html[0].Main {
		t.Errorf("html: %+v", html)
	}
}

// What is drawn comes as a picture and as data; what can be shown in many forms
// comes in all of them.
func TestInterpreterShows(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	shown := in.run(t, "class P:\n    def _repr_png_(self): return b'\\x89PNG'\n    def _repr_html_(self): raise ValueError\ndisplay(P()); P()")
	if len(shown) != 2 || shown[0].Main || !shown[1].Main || string(shown[0].PNG) != "\x89PNG" || shown[0].HTML != "" {
		t.Errorf("shown %+v", shown)
	}
	if got := brief(in.run(t, "import matplotlib.pyplot as plt")); got != "" {
		t.Skipf("no pictures without python3-matplotlib: %s", got)
	}
	drawn := in.run(t, "plt.plot([1, 2, 3], [2, 4, 1]); plt.title('t'); plt.show()")
	if len(drawn) != 1 || !strings.HasPrefix(string(drawn[0].PNG), "\x89PNG\r\n") {
		t.Fatalf("drawn %+v", drawn)
	}
	if c := drawn[0].Chart; c.Type != "line" || c.Title != "t" || len(c.Elements) != 1 || len(c.Elements[0].Points) != 3 || c.Elements[0].Points[1][1] != 4 {
		t.Errorf("chart %+v", c)
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
	if got := brief(in.run(t, "import os; os.getcwd(), 'v' in globals()", "context_id", one.ID)); got != "=('/tmp', True)\n" {
		t.Errorf("in one: %q", got)
	}
	if got := brief(in.run(t, "'v' in globals()", "context_id", two.ID)); got != "=False\n" {
		t.Errorf("in two: %q", got)
	}
	a.Want(t, http.StatusOK, http.MethodPost, "/contexts/"+one.ID+"/restart", nil, in.headers()...)
	if got := brief(in.run(t, "import os; os.getcwd(), 'v' in globals()", "context_id", one.ID)); got != "=('/tmp', False)\n" {
		t.Errorf("after a restart: %q", got)
	}
	a.Want(t, http.StatusNoContent, http.MethodDelete, "/contexts/"+two.ID, nil, in.headers()...)
	var all []context
	a.Want(t, http.StatusOK, http.MethodGet, "/contexts", nil, in.headers()...).Decode(t, &all)
	if len(all) != 1 || all[0] != one {
		t.Errorf("listed %+v", all)
	}
	for _, ans := range []rig.Answer{
		a.Do(t, http.MethodPost, "/execute", map[string]any{"code": "1", "context_id": two.ID}, in.headers()...),
		a.Do(t, http.MethodDelete, "/contexts/nope", nil, in.headers()...),
	} {
		if ans.Status != http.StatusNotFound || !strings.Contains(string(ans.Body), "not found") {
			t.Errorf("unknown context: %v", ans)
		}
	}
	bad := map[string]any{"code": "1", "context_id": one.ID, "language": "python"}
	a.Want(t, http.StatusBadRequest, http.MethodPost, "/execute", bad, in.headers()...)
	a.Want(t, http.StatusBadRequest, http.MethodPost, "/execute", map[string]any{"code": "1", "language": "cobol"}, in.headers()...)
}

// A client that drops does not lose the run: its record has all of it.
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
	if got := brief(all); strings.Count(got, "out:") != 20 || !strings.HasSuffix(got, "='done'\n") {
		t.Errorf("the record has %q", got)
	}
	// To end an execution is to end its process: the kernel lives on.
	s = a.Stream(t, http.MethodPost, "/execute", map[string]any{"code": "print('in', flush=True)\nwhile True: time.sleep(0.1)"}, in.headers()...)
	s.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	a.Want(t, http.StatusOK, http.MethodPost, "/commands/"+s.Header.Get("X-Process-Id")+"/kill", nil, in.headers()...)
	if rest := s.All(t); rest[len(rest)-1].Type != "end_of_execution" {
		t.Errorf("killed: %+v", rest)
	}
	if got := brief(in.run(t, "i")); got != "=19\n" {
		t.Errorf("after an interrupt: %q", got)
	}
}
