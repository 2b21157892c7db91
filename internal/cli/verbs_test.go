package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLogsPrintTheRecord(t *testing.T) {
	g := newFakeGateway(t, short...)
	got := g.verb(nil, "logs", fakeID)
	if got.code != 0 || got.out != "a\n\xff\x00" || got.errOut != "oops\n" {
		t.Errorf("exit %d %s, stdout %q, stderr %q", got.code, got.say, got.out, got.errOut)
	}
	got = g.verb(nil, "logs", "--json", fakeID)
	if n := strings.Count(got.out, "\n"); n != len(short) || !strings.Contains(got.out, `"seq":6`) {
		t.Errorf("%d lines of JSON of %d: %s", n, len(short), got.out)
	}
	for l := range strings.Lines(got.out) {
		if !json.Valid([]byte(l)) {
			t.Errorf("not JSON: %s", l)
		}
	}
	if got = g.verb(nil, "logs", "--since", "2026-01-02T03:04:06Z", fakeID); got.out != "" {
		t.Errorf("older than --since: %q", got.out)
	}
	if got = g.verb(nil, "logs", "--after", "4", fakeID); got.out != "\xff\x00" {
		t.Errorf("after 4: %q", got.out)
	}
}

// If retention deleted a record's beginning, logs starts at the first event kept and
// reports that. --after a deleted event is an error.
func TestLogsStartAtTheFirstEventKept(t *testing.T) {
	g := newFakeGateway(t, short...)
	g.first = 5
	g.grow(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
	for _, args := range [][]string{{"logs", fakeID}, {"logs", "-f", fakeID}} {
		if got := g.verb(nil, args...); got.out != "\xff\x00" || !strings.Contains(got.errOut, "events 1 to 4 were deleted") {
			t.Errorf("%v: exit %d %s, stdout %q, stderr %q", args, got.code, got.say, got.out, got.errOut)
		}
	}
	if got := g.verb(nil, "logs", "--after", "2", fakeID); got.out != "" || !strings.Contains(got.say, "retention has passed") {
		t.Errorf("after 2: %q, stdout %q", got.say, got.out)
	}
}

func TestLogsFollowToTheEnd(t *testing.T) {
	g := newFakeGateway(t, short[:3]...)
	g.cutAfter[2] = true
	go g.grow(`{"type":"stdout","offset":2,"data":"b\n"}`, `{"type":"end","exit_code":4,"signal":null,"cause":"exited"}`)
	if got := g.verb(nil, "logs", "-f", fakeID); got.code != 0 || got.out != "a\nb\n" {
		t.Errorf("exit %d %s, stdout %q", got.code, got.say, got.out)
	}
}

// A broken tail resumes; events that arrive twice are written once.
func TestTailWritesEachEventOnce(t *testing.T) {
	g := newFakeGateway(t, short...)
	g.cutAfter[4] = true
	got := g.verb(nil, "events", "tail", "--json")
	if n := strings.Count(got.out, "\n"); n != len(short) || got.say != "enough" {
		t.Errorf("%d lines of %d, %q:\n%s", n, len(short), got.say, got.out)
	}
	if len(g.afters) != 2 || g.afters[0] != "now" || g.afters[1] != "2026-01-02T03:03:58Z" {
		t.Errorf("requested events after %q", g.afters)
	}
	got = g.verb(nil, "events", "tail", "--no-follow")
	if n := strings.Count(got.out, "\n"); n != len(short) || got.code != 0 || !strings.Contains(got.out, "stdout") || strings.Contains(got.out, "\x1b") {
		t.Errorf("exit %d, %d lines:\n%s", got.code, n, got.out)
	}
}

func TestListsAsTableAndAsJSON(t *testing.T) {
	g := newFakeGateway(t)
	tests := []struct {
		args    []string
		has     []string
		hasNot  string
		entries int
	}{
		{[]string{"ps"}, []string{"PROCESS", fakeID, "running", "sleep 9"}, "02-iabc", 1},
		{[]string{"ps", "--all"}, []string{"02-iabc", "exited 3"}, "\x1b", 2},
		{[]string{"sandbox", "ls"}, []string{"i1", "i2", "ba", "standard", "fedcba987654 "}, "\x1b", 4},
		{[]string{"sandbox", "ls"}, []string{"standard"}, "0123456789abcdef", 4},
		{[]string{"sandbox", "ls"}, []string{"paused"}, "iend", 4},
		{[]string{"sandbox", "ls", "--all"}, []string{"iend", "ended, lost"}, "\x1b", 5},
		{[]string{"hosts"}, []string{"local", "alive", "1/9", "direct"}, "\x1b", 1},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := g.verb(nil, tt.args...)
			for _, want := range tt.has {
				if !strings.Contains(got.out, want) {
					t.Errorf("no %q in\n%s%s", want, got.out, got.say)
				}
			}
			if strings.Contains(got.out, tt.hasNot) {
				t.Errorf("%q in\n%s", tt.hasNot, got.out)
			}
			var all []map[string]any
			got = g.verb(nil, append(tt.args, "-o", "json")...)
			if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all) != tt.entries {
				t.Errorf("JSON of %d entries, %v:\n%s", len(all), err, got.out)
			}
		})
	}
}

func TestKillSendsTheSignal(t *testing.T) {
	g := newFakeGateway(t)
	for _, name := range []string{"TERM", "sigterm", "15"} {
		if got := g.verb(nil, "kill", "-s", name, fakeID); got.code != 0 || got.out != "" {
			t.Errorf("exit %d %s", got.code, got.say)
		}
	}
	g.verb(nil, "kill", fakeID)
	if len(g.signals) != 4 || g.signals[0] != 15 || g.signals[1] != 15 || g.signals[2] != 15 || g.signals[3] != 9 {
		t.Errorf("signals %v", g.signals)
	}
	if got := g.verb(nil, "kill", "-s", "NOPE", fakeID); got.code != 1 {
		t.Errorf("exit %d for an invalid signal", got.code)
	}
}

func TestSandboxCreateAndRemove(t *testing.T) {
	g := newFakeGateway(t)
	if got := g.verb(nil, "sandbox", "create", "-m", "a=b"); got.out != "iabc\n" {
		t.Errorf("create printed %q %s", got.out, got.say)
	}
	if got := g.verb(nil, "sandbox", "rm", "iabc", "i2"); got.code != 0 || len(g.removed) != 2 {
		t.Errorf("exit %d, removed %v", got.code, g.removed)
	}
}

// An empty id, as from an unset variable of a script, is rejected before any request is
// sent, also for the other arguments.
func TestInvalidIDsAreRejectedLocally(t *testing.T) {
	env := map[string]string{"MILLRACE_URL": "http://127.0.0.1:1", "MILLRACE_API_KEY": "k"} // nothing listens there
	for args, code := range map[string]int{
		"sandbox rm": 1, "sandbox rm i1": 1, "sandbox pause": 1, "sandbox resume": 1, "sandbox snapshot": 1, "sandbox fork": 1, "snapshot rm": 1,
		"logs": 1, "kill": 1, "attach": ExitMillrace, "host held": 1, "host drain": 1, "host undrain": 1, "key rm": 1, "template show": 1, "template rm": 1,
	} {
		for _, id := range []string{"", ".."} {
			if got := verb(t, env, nil, append(strings.Fields(args), id)...); got.code != code || !strings.Contains(got.say, "is not a valid id or name") || got.errOut != "" {
				t.Errorf("%s %q: exit %d %q %q", args, id, got.code, got.say, got.errOut)
			}
		}
	}
	for _, n := range []string{"NaN", "Inf", "-1"} {
		if got := verb(t, env, nil, "sandbox", "create", "--cpus", n); got.code != 1 || !strings.HasPrefix(got.say, "--cpus ") {
			t.Errorf("--cpus %s: exit %d %q", n, got.code, got.say)
		}
	}
}

func TestDoctorChecksTheGateway(t *testing.T) {
	g := newFakeGateway(t)
	got := g.verb(nil, "doctor", "-o", "json")
	var h health
	if err := json.Unmarshal([]byte(got.out), &h); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	ok := map[string]bool{}
	for _, c := range h.Checks {
		ok[c.Name] = c.OK
	}
	if !ok["gateway"] || !ok["nats"] || !ok["hosts"] || len(h.Hosts) != 1 {
		t.Errorf("checks %+v", h.Checks)
	}
}

func TestLocalUpIsFound(t *testing.T) {
	g := newFakeGateway(t, short...)
	dir := t.TempDir()
	for name, text := range map[string]string{KeyFile: "e2b_00\n", AddressFile: g.srv.URL + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := verb(t, map[string]string{"MILLRACE_DATA": dir}, nil, "logs", fakeID); got.code != 0 {
		t.Errorf("by MILLRACE_DATA: exit %d %s", got.code, got.say)
	}
	if got := verb(t, map[string]string{}, nil, "logs", "--data", dir, fakeID); got.code != 0 {
		t.Errorf("by --data: exit %d %s", got.code, got.say)
	}
}

func TestDataDir(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"given", map[string]string{"MILLRACE_DATA": "/d", "HOME": "/h"}, "/d"},
		{"XDG", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/millrace"},
		{"a relative XDG is ignored", map[string]string{"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/millrace"},
		{"home", map[string]string{"HOME": "/h"}, "/h/.local/state/millrace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := DataDir(func(k string) string { return tt.env[k] }); got != tt.want || err != nil {
				t.Errorf("DataDir = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for s, want := range map[string]time.Time{"": {}, "10m": now.Add(-10 * time.Minute), "2026-01-01T00:00:00Z": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if got, err := parseSince(s, now); err != nil || !got.Equal(want) {
			t.Errorf("parseSince(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	if _, err := parseSince("yesterday", now); err == nil {
		t.Error("yesterday is a time")
	}
}

// The hand-written decoder agrees with encoding/json or returns false.
func FuzzFast(f *testing.F) {
	for _, s := range []string{
		`{"seq":1,"time":"2026-01-02T03:04:05.000006Z","type":"stdout","offset":0,"data":"a\n\t\"\\é"}`,
		`{"seq":18446744073709551616,"time":"x","type":"pty","offset":0,"data":"\u0000"}`,
		`{"seq":2,"time":"2026-01-02T03:04:05Z","type":"stderr","offset":7,"data":"x","data":"y"}`,
		`{"type":"keepalive"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\n") {
			return
		}
		var got, want event
		if !decodeOutput([]byte(s+"\n"), &got) {
			return
		}
		if err := json.Unmarshal([]byte(s), &want); err != nil {
			// JSON forbids raw control characters; no gateway sends them.
			if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
				t.Fatalf("fast accepted %q, which is not JSON: %v", s, err)
			}
			return
		}
		if got.Seq != want.Seq || got.Type != want.Type || got.Offset != want.Offset || !got.Time.Equal(want.Time) || string(got.bytes()) != string(want.bytes()) {
			t.Errorf("fast(%q) = %+v %q; want %+v %q", s, got, got.bytes(), want, want.bytes())
		}
	})
}

func TestQuantile(t *testing.T) {
	var all []time.Duration
	for i := 1; i <= 100; i++ {
		all = append(all, time.Duration(i))
	}
	if quantile(all, 0.5) != 50 || quantile(all, 0.99) != 99 || quantile(all[:1], 0.99) != 1 {
		t.Errorf("p50 %d, p99 %d", quantile(all, 0.5), quantile(all, 0.99))
	}
}

// key create prints only the key to standard output, for scripts.
func TestKeys(t *testing.T) {
	g := newFakeGateway(t)
	if got := g.verb(nil, "key", "create", "ci"); got.code != 0 || got.out != "e2b_secret\n" || !strings.Contains(got.errOut, "bb") {
		t.Errorf("create: exit %d %s, stdout %q, stderr %q", got.code, got.say, got.out, got.errOut)
	}
	if got := g.verb(nil, "key", "ls"); got.code != 0 || !strings.Contains(got.out, "aa") || !strings.Contains(got.out, "e2b_1234...") {
		t.Errorf("ls: exit %d %s, stdout %q", got.code, got.say, got.out)
	}
	if got := g.verb(nil, "key", "rm", "aa", "bb"); got.code != 0 || strings.Join(g.removed, " ") != "aa bb" {
		t.Errorf("rm: exit %d %s, removed %q", got.code, got.say, g.removed)
	}
}
