package e2e_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// screenOf is a screen as the gateway returns it.
type screenOf struct {
	Seq, Last uint64
	Ended     bool
	Lines     [][]struct{ T string }
}

func (s *screenOf) text() string {
	var b strings.Builder
	for _, l := range s.Lines {
		for _, g := range l {
			b.WriteString(g.T)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func screenAt(t *testing.T, a *rig.API, id, query string) screenOf {
	t.Helper()
	var s screenOf
	must(t, json.Unmarshal(a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+id+"/screen"+query, nil).Body, &s))
	return s
}

// terminal starts a program at a terminal of 80 by 24.
func terminal(t *testing.T, a *rig.API, sandbox, cmd string, args ...string) string {
	t.Helper()
	s := a.Commands(t, sandbox, cmd, "args", args, "pty", map[string]int{"cols": 80, "rows": 24}, "stdin", true,
		"env", map[string]string{"TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ ", "HOME": "/tmp"})
	first, err := s.Next()
	must(t, err)
	return first.Process
}

// typed is input, and the text that the screen then shows.
type typed struct{ keys, shows string }

func typeAll(t *testing.T, a *rig.API, id string, all []typed) {
	t.Helper()
	for _, k := range all {
		if k.keys == "resize" {
			a.Want(t, http.StatusNoContent, http.MethodPost, "/v1/processes/"+id+"/resize", map[string]int{"cols": 100, "rows": 30})
		} else if k.keys != "" {
			a.Want(t, http.StatusNoContent, http.MethodPost, "/v1/processes/"+id+"/stdin", k.keys)
		}
		var s screenOf
		if !eventually(30*time.Second, func() bool {
			s = screenAt(t, a, id, "")
			return strings.Contains(s.text(), k.shows)
		}) {
			t.Fatalf("after %q, %q is not on the screen:\n%s", k.keys, k.shows, s.text())
		}
	}
}

func endProcess(t *testing.T, a *rig.API, id string) {
	t.Helper()
	a.Do(t, http.MethodPost, "/v1/processes/"+id+"/signal", map[string]string{"signal": "SIGKILL"})
	if !eventually(30*time.Second, func() bool { return screenAt(t, a, id, "").Ended }) {
		t.Fatalf("process %s does not end", id)
	}
}

// Every screen of recorded sessions is, cell by cell, that of xterm.js.
func TestScreensAreThoseOfXterm(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	unicode := "printf '日本語 한국어 e\\xcc\\x81 👍 é ｶﾅ ← ▒ \\e[1;38;5;200;44mstyle\\e[m \\xff\\n'; echo do''ne\n"
	sessions := []struct {
		name, program string
		args          []string
		typed         []typed
	}{
		{"shell", "bash", []string{"--norc"}, []typed{{"", "$"}, {unicode, "done"}, {"ls --color=always -la /usr/bin; echo li''sted\n", "listed"}, {"resize", ""}, {unicode, "done"}, {"seq 100 140\n", "140"}, {"\x1b[A\x01\x06\x06x\x7f", "seq"}}},
		{"vim", "vim", []string{"-u", "NONE", "-N", "-i", "NONE", "/etc/services"}, []typed{{"", "services"}, {":set nu\r", "  1 "}, {"\x06", ""}, {"ihello 日本 e\u0301 \x1b", "hello"}, {"3ddu", ""}, {"resize", ""}, {":vs\r:split\r", ""}, {":echo 'rea'.'dy'\r", "ready"}}},
		{"top", "top", []string{"-d", "0.2"}, []typed{{"", "PID"}, {"1", "PID"}, {"c", "PID"}, {"z", "PID"}, {"x", "PID"}}},
		{"tmux", "tmux", []string{"-L", "screens", "-f", "/dev/null", "new", "bash --norc"}, []typed{{"", "bash"}, {unicode, "done"}, {"\x02%", "│"}, {"seq 60; echo se''q\n", "seq"}, {"\x02\"", "─"}, {"resize", ""}, {"\x02z", ""}, {"echo zo''om\n", "zoom"}}},
	}
	for _, s := range sessions {
		t.Run(s.name, func(t *testing.T) {
			if _, err := exec.LookPath(s.program); err != nil {
				t.Skip(s.program + " is not installed")
			}
			id := terminal(t, a, box.ID, s.program, s.args...)
			typeAll(t, a, id, s.typed)
			endProcess(t, a, id)
			for _, r := range rig.Node(t, []string{"MILLRACE_KEY=" + a.Key}, "xterm.mjs", a.URL, id) {
				if !r.OK {
					t.Errorf("%s: %s", r.Name, r.Error)
				}
				t.Log(r.Name)
			}
		})
	}
}

// A screen can be watched live, searched, put on a timeline and exported, also when its sandbox
// is gone. What another tenant may not read does not exist.
func TestScreenOfAnEndedSandbox(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	id := terminal(t, a, box.ID, "bash", "--norc", "-c", `read x; printf 'got %s \377\n' "$x"; read x; exit 3`)
	live := a.Stream(t, http.MethodGet, "/v1/processes/"+id+"/screen/live", nil)
	defer live.Close()
	typeAll(t, a, id, []typed{{"needle\n", "got needle"}})
	shown := screenAt(t, a, id, "").Seq
	typeAll(t, a, id, []typed{{"\n", ""}})
	if !eventually(30*time.Second, func() bool { return screenAt(t, a, id, "").Ended }) {
		t.Fatal("the process does not end")
	}
	a.Kill(t, box.ID)

	if s := screenAt(t, a, id, fmt.Sprint("?seq=", shown)); !s.Ended || s.Seq != shown || !strings.Contains(s.text(), "got needle") {
		t.Errorf("the screen after event %d:\n%s", shown, s.text())
	}
	if s := screenAt(t, a, id, "?seq=1"); strings.TrimSpace(s.text()) != "" {
		t.Errorf("the screen after event 1:\n%s", s.text())
	}
	a.Want(t, http.StatusBadRequest, http.MethodGet, "/v1/processes/"+id+"/screen?seq=99999", nil)

	var found struct {
		Hits []struct {
			Seq  uint64
			Line string
		}
	}
	must(t, json.Unmarshal(a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+id+"/search?q="+url.QueryEscape("got needle"), nil).Body, &found))
	if len(found.Hits) != 1 || !strings.Contains(found.Hits[0].Line, "got needle") {
		t.Errorf("search: %+v", found)
	}
	var line struct {
		Last    uint64
		End     *time.Time
		Buckets []struct{ Bytes int }
		Marks   []struct{ Kind, Text string }
	}
	must(t, json.Unmarshal(a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+id+"/timeline?buckets=20", nil).Body, &line))
	bytes := 0
	for _, b := range line.Buckets {
		bytes += b.Bytes
	}
	if len(line.Buckets) != 20 || line.End == nil || len(line.Marks) == 0 || line.Marks[len(line.Marks)-1].Text != "exited, code 3" {
		t.Errorf("timeline: %+v", line)
	}
	var whole struct {
		End       *time.Time
		Marks     []struct{ Kind string }
		Processes []struct{ ID, Status string }
	}
	must(t, json.Unmarshal(a.Want(t, http.StatusOK, http.MethodGet, "/v1/timeline/"+box.ID, nil).Body, &whole))
	if whole.End == nil || len(whole.Marks) < 3 || whole.Marks[0].Kind != "created" || len(whole.Processes) != 1 || whole.Processes[0].ID != id {
		t.Errorf("timeline of the sandbox: %+v", whole)
	}

	file := filepath.Join(t.TempDir(), "p.cast")
	cli(t, a, "export", id, "-o", file)
	cast, err := os.ReadFile(file)
	must(t, err)
	if out, want := castOutput(t, string(cast)), recordedOutput(t, a, id); out != want || len(want) != bytes {
		t.Errorf("exported %q, recorded %q; the timeline has %d bytes", out, want, bytes)
	}
	for _, path := range []string{"screen", "screen/live", "timeline", "search?q=x", "export.cast"} {
		if got := a.Do(t, http.MethodGet, "/v1/processes/"+id+"/"+path, nil, "X-API-KEY", "e2b_"+strings.Repeat("0", 40)); got.Status != http.StatusUnauthorized {
			t.Errorf("%s with another key: %v", path, got)
		}
	}
}

// castOutput returns the output in an asciicast.
func castOutput(t *testing.T, cast string) string {
	t.Helper()
	var out []string
	r := bufio.NewScanner(strings.NewReader(cast))
	r.Scan() // the header
	for r.Scan() {
		var e [3]any
		must(t, json.Unmarshal(r.Bytes(), &e))
		switch text := fmt.Sprint(e[2]); e[1] {
		case "o":
			out = append(out, text)
		case "b":
			raw, err := base64.StdEncoding.DecodeString(text)
			must(t, err)
			out[len(out)-1] = string(raw)
		}
	}
	return strings.Join(out, "")
}

// recordedOutput returns the output in a record.
func recordedOutput(t *testing.T, a *rig.API, id string) string {
	t.Helper()
	s := a.Events(t, id, "follow=0")
	var out []byte
	for {
		l, err := s.Next()
		if err != nil {
			return string(out)
		}
		if l.IsOutput() {
			out = append(out, l.Bytes()...)
		}
	}
}
