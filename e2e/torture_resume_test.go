package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// fullRecord is a complete record as text.
type fullRecord struct {
	id    string
	lines []*rig.Line
	text  string // one event per line
}

func (w *fullRecord) last() uint64 { return w.lines[len(w.lines)-1].Seq }

// after returns the part of the record after an event.
func (w *fullRecord) after(seq uint64) string {
	var b strings.Builder
	for _, l := range w.lines {
		if l.Seq > seq {
			b.WriteString(l.Raw + "\n")
		}
	}
	return b.String()
}

// recorded runs a command that writes in many events, and reads its record.
func recorded(t *testing.T, a *rig.API, sandbox string, events int) *fullRecord {
	t.Helper()
	cmd := fmt.Sprintf("for i in $(seq 1 %d); do echo line $i; [ $((i %% 10)) = 0 ] && sleep 0.002; done; exit 3", events)
	start := a.Commands(t, sandbox, cmd).All(t)[0]
	w := &fullRecord{id: start.Process, lines: a.Events(t, start.Process, "").All(t)}
	for i, l := range w.lines {
		if l.Seq != uint64(i+1) {
			t.Fatalf("event %d has seq %d", i+1, l.Seq)
		}
	}
	w.text = raws(w.lines)
	return w
}

// TestReplayFromEveryPosition covers B28: every position of a record is served or rejected
// with a reason; none is a hang or an empty response.
func TestReplayFromEveryPosition(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	w := recorded(t, a, box.ID, 200)
	last := w.last()
	for _, tt := range []struct {
		after  string
		status int
		want   string // of 200
	}{
		{"", 200, w.text},
		{"0", 200, w.text},
		{"1", 200, w.after(1)},
		{fmt.Sprint(last - 1), 200, w.after(last - 1)},
		{fmt.Sprint(last), 200, ""},
		{"now", 200, ""},
		{fmt.Sprint(last + 1), 400, ""},
		{fmt.Sprint(uint64(1) << 63), 400, ""},
		{fmt.Sprint(uint64(math.MaxUint64)), 400, ""},
		{"18446744073709551616", 400, ""},
		{"-1", 400, ""},
		{"abc", 400, ""},
		{"1.5", 400, ""},
		{"+1", 400, ""},
		{"0x1", 400, ""},
		{"%00", 400, ""},
	} {
		ans := a.Do(t, http.MethodGet, "/v1/processes/"+w.id+"/events?after="+strings.ReplaceAll(tt.after, "+", "%2B"), nil)
		if ans.Status != tt.status || tt.status == 200 && string(ans.Body) != tt.want {
			t.Errorf("after=%s: %d %.200s, want %d and %d bytes", tt.after, ans.Status, ans.Body, tt.status, len(tt.want))
		}
		if tt.status == 400 && !bytes.Contains(ans.Body, []byte(`"message"`)) {
			t.Errorf("after=%s: %v", tt.after, ans)
		}
	}
	past := a.Do(t, http.MethodGet, fmt.Sprintf("/v1/processes/%s/events?after=%d", w.id, last+1), nil)
	if want := fmt.Sprintf(`"last":%d`, last); !bytes.Contains(past.Body, []byte(want)) || !bytes.Contains(past.Body, []byte("out_of_range")) {
		t.Errorf("past the end: %v", past)
	}
	t.Run("Connect", func(t *testing.T) { connectPositions(t, a, box.ID, w) })
}

// connectPositions tests the same positions with Connect.
func connectPositions(t *testing.T, a *rig.API, sandbox string, w *fullRecord) {
	all := rig.Output(w.lines, "stdout")
	for _, tt := range []struct {
		from string
		code string
		out  string
	}{
		{"0", "", all},
		{"1", "", all},
		{fmt.Sprint(w.last()), "", ""},
		{"live", "", ""},
		{fmt.Sprint(w.last() + 2), "out_of_range", ""},
		{fmt.Sprint(uint64(1) << 63), "out_of_range", ""},
		{"-1", "invalid_argument", ""},
		{"abc", "invalid_argument", ""},
	} {
		msg := rig.Message("/process.Process/Connect", map[string]any{}, "E2b-Sandbox-Id", sandbox, "X-Process-Id", w.id, "X-Replay-From", tt.from)
		run := a.Dial(t, msg).All(t)
		code := ""
		if run.Error != nil {
			code = run.Error.Code
		}
		if code != tt.code || run.Stdout() != tt.out || code == "" && (run.End == nil || run.End.ExitCode != 3) {
			t.Errorf("X-Replay-From %s: %s, %d bytes, end %+v; want %q and %d bytes", tt.from, run.Last.Payload, len(run.Stdout()), run.End, tt.code, len(tt.out))
		}
	}
}

// TestTwoReadersSeeTheSame covers B29: two readers of one process, of which one reconnects
// repeatedly, see the same.
func TestTwoReadersSeeTheSame(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	s := a.Commands(t, box.ID, "for i in $(seq 1 300); do echo $i; sleep 0.003; done")
	id := s.Must(t).Process
	stay := a.Events(t, id, "")
	var got []*rig.Line
	var after uint64
	for rounds := 0; ; rounds++ {
		r := a.Events(t, id, fmt.Sprintf("after=%d", after))
		for range 7 {
			l, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got, after = append(got, l), l.Seq
			if l.Type == "end" {
				break
			}
		}
		r.Close()
		if len(got) > 0 && got[len(got)-1].Type == "end" {
			t.Logf("%d events in %d rounds", len(got), rounds+1)
			break
		}
	}
	if want := raws(stay.All(t)); raws(got) != want {
		t.Errorf("%d bytes, want %d", len(raws(got)), len(want))
	}
}

// TestHundredReadersSeeTheSame covers B30: a hundred readers from random positions read the
// same bytes.
func TestHundredReadersSeeTheSame(t *testing.T) {
	a := api(t)
	w := recorded(t, a, a.Create(t).ID, 2000)
	var wg sync.WaitGroup
	for range 100 {
		from := rand.Uint64N(w.last() + 1)
		wg.Go(func() {
			ans, err := a.Call(http.MethodGet, fmt.Sprintf("/v1/processes/%s/events?after=%d", w.id, from), nil)
			if err != nil || ans.Status != http.StatusOK || string(ans.Body) != w.after(from) {
				t.Errorf("after %d: %d, %d bytes (%v)", from, ans.Status, len(ans.Body), err)
			}
		})
	}
	wg.Wait()
}

// TestSlowReaderDoesNotDelayOthers covers B31: a stalled reader does not delay other readers.
func TestSlowReaderDoesNotDelayOthers(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const lines = 3_000_000 // 22 MB
	slow := a.StartStream(t, box.ID, fmt.Sprintf("seq 1 %d", lines))
	pid := slow.Started(t).Event.Start.PID
	began := time.Now()
	if _, err := checkSeq(a.ConnectTo(t, box.ID, pid), lines); err != nil {
		t.Errorf("the fast one: %v", err)
	}
	t.Logf("the fast one took %v", time.Since(began))
	if _, err := checkSeq(slow, lines); err != nil {
		t.Errorf("the slow one: %v", err)
	}
}

// TestRecordOutlivesProcess covers B35: the record can be read after the process has ended,
// and after its sandbox.
func TestRecordOutlivesProcess(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	w := recorded(t, a, box.ID, 100)
	mid := w.last() / 2
	got := raws(a.Events(t, w.id, fmt.Sprintf("after=%d", mid)).All(t))
	if got != w.after(mid) {
		t.Errorf("after %d: %d bytes, want %d", mid, len(got), len(w.after(mid)))
	}
	run := a.ConnectTo(t, box.ID, w.pid()).All(t)
	if run.Stdout() != rig.Output(w.lines, "stdout") || run.End == nil || run.End.ExitCode != 3 {
		t.Errorf("Connect: %d bytes, %+v", len(run.Stdout()), run.End)
	}
}

// pid returns the process's pid.
func (w *fullRecord) pid() uint32 {
	for _, l := range w.lines {
		if l.Type == "start" {
			return l.PID
		}
	}
	return 0
}

// TestRecordOutlivesSandbox covers B36: the record can be read after the sandbox has ended.
func TestRecordOutlivesSandbox(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	w := recorded(t, a, box.ID, 100)
	r := a.StartStream(t, box.ID, "echo up; sleep 60")
	running := r.Started(t)
	until(t, r, "up\n")
	a.Kill(t, box.ID)
	for name, headers := range map[string][]string{"NDJSON": nil, "SSE": {"Accept", "text/event-stream"}} {
		if got := raws(a.Events(t, w.id, "", headers...).All(t)); got != w.text {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(w.text))
		}
	}
	run := a.ConnectTo(t, box.ID, w.pid()).All(t)
	if run.Stdout() != rig.Output(w.lines, "stdout") || run.End == nil || run.End.ExitCode != 3 {
		t.Errorf("Connect: %d bytes, %s", len(run.Stdout()), run.Last.Payload)
	}
	var one struct {
		State    string `json:"state"`
		ExitCode *int   `json:"exit_code"`
	}
	a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+w.id, nil).Decode(t, &one)
	if one.State != "ended" || one.ExitCode == nil || *one.ExitCode != 3 {
		t.Errorf("its summary: %+v", one)
	}
	// A process that was running has its output, and an end without success.
	lines := a.Events(t, processOf(t, running), "").All(t)
	end := rig.End(t, lines)
	if rig.Output(lines, "stdout") != "up\n" || end.ExitCode != nil && *end.ExitCode == 0 || end.Cause == "exited" {
		t.Errorf("the running process:\n%s", raws(lines))
	}
}

// processOf returns the id in a start event.
func processOf(t *testing.T, m rig.EventMessage) string {
	t.Helper()
	id := rig.ProcessOf(m.Payload)
	if id == "" {
		t.Fatalf("no process id in %s", m.Payload)
	}
	return id
}

// TestForeignRecordsAreNotFound covers B38: records of other sandboxes and tenants are not
// found.
func TestForeignRecordsAreNotFound(t *testing.T) {
	a := api(t)
	mine, other := a.Create(t, "secure", true), a.Create(t, "secure", true)
	w := recorded(t, a, other.ID, 10)
	if mine.Token == "" || mine.Token == other.Token {
		t.Fatalf("tokens %q and %q", mine.Token, other.Token)
	}
	for _, path := range []string{
		"/v1/processes/00000000000000000000000000-" + other.ID + "/events",
		"/v1/processes/" + strings.TrimSuffix(w.id, other.ID) + mine.ID + "/events?after=3",
		"/v1/processes/" + strings.TrimSuffix(w.id, other.ID) + "nosuchsandbox/events",
		"/v1/processes/nonsense/events", "/v1/processes/%2e%2e/events", "/v1/processes/%3E/events", "/v1/processes/*/events",
		"/v1/streams/00000000000000000000000000-" + other.ID + "?offset=-1",
	} {
		if ans := a.Do(t, http.MethodGet, path, nil); ans.Status != http.StatusNotFound {
			t.Errorf("%s: %v", path, ans)
		}
	}
	// Another sandbox's token gives no access to this one.
	nobody := &rig.API{URL: a.URL}
	for name, headers := range map[string][]string{
		"the other's sandbox, my token": {"E2b-Sandbox-Id", other.ID, "X-Access-Token", mine.Token},
		"no token":                      {"E2b-Sandbox-Id", other.ID},
		"my sandbox, the other's pid":   {"E2b-Sandbox-Id", mine.ID, "X-Access-Token", mine.Token},
		"my sandbox, the other's id":    {"E2b-Sandbox-Id", mine.ID, "X-Access-Token", mine.Token, "X-Process-Id", w.id},
	} {
		msg := rig.Message("/process.Process/Connect", map[string]any{"process": map[string]any{"pid": w.pid()}}, headers...)
		r := nobody.Dial(t, msg)
		body := r.Rest(t)
		if bytes.Contains(body, []byte(`"data"`)) || r.Status == http.StatusOK && !bytes.Contains(body, []byte("not_found")) {
			t.Errorf("%s: %d %.200q", name, r.Status, body)
		}
	}
	good := nobody.Dial(t, rig.Message("/process.Process/Connect", map[string]any{"process": map[string]any{"pid": w.pid()}},
		"E2b-Sandbox-Id", other.ID, "X-Access-Token", other.Token)).All(t)
	if good.Stdout() != rig.Output(w.lines, "stdout") {
		t.Errorf("its own token: %s", good.Last.Payload)
	}
	if ans := nobody.Do(t, http.MethodGet, "/v1/processes/"+w.id+"/events", nil); ans.Status != http.StatusUnauthorized {
		t.Errorf("no key: %v", ans)
	}
}

// TestInvalidLastEventIDIsRejected covers B39: an invalid Last-Event-ID is rejected.
func TestInvalidLastEventIDIsRejected(t *testing.T) {
	a := api(t)
	w := recorded(t, a, a.Create(t).ID, 10)
	ask := func(id string) (int, string) {
		t.Helper()
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(a.URL, "http://"), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		go fmt.Fprintf(conn, "GET /v1/processes/%s/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-Key: %s\r\nAccept: text/event-stream\r\nLast-Event-ID: %s\r\n\r\n", w.id, a.Key, id)
		raw, _ := io.ReadAll(conn)
		var status int
		fmt.Sscanf(string(raw), "HTTP/1.1 %d", &status)
		return status, string(raw)
	}
	for _, tt := range []struct {
		name, id string
		want     []int
	}{
		{"a good one", "3", []int{200}},
		{"the last", fmt.Sprint(w.last()), []int{204}},
		{"negative", "-1", []int{400}},
		{"a word", "now", []int{400}},
		{"past the end", fmt.Sprint(w.last() + 1), []int{400}},
		{"too great", strings.Repeat("9", 40), []int{400}},
		{"two lines", "3\r\nX-Other: 4", []int{200}},
		{"a folded line", "3\r\n 4", []int{400, 200}},
		{"a bare CR", "3\r4", []int{400}},
		{"a NUL", "3\x004", []int{400}},
		{"not UTF-8", "3\xff", []int{400}},
		{"1 MB", strings.Repeat("3", 1<<20), []int{431, 400, 0}},
	} {
		status, raw := ask(tt.id)
		ok := false
		for _, s := range tt.want {
			ok = ok || s == status
		}
		if !ok {
			t.Errorf("%s: %d %.300s, want %v", tt.name, status, raw, tt.want)
		}
		if status == 200 && tt.name == "a folded line" && strings.Contains(raw, "\nid: 1\n") {
			t.Errorf("%s: it was ignored", tt.name)
		}
	}
	if ans := a.Do(t, http.MethodGet, "/livez", nil); ans.Status != http.StatusOK {
		t.Errorf("afterwards: %v", ans)
	}
}

// TestEndIsSeenOnceByEveryReader covers B41: a reader that resumes near the end sees the end
// exactly once.
func TestEndIsSeenOnceByEveryReader(t *testing.T) {
	a := api(t)
	w := recorded(t, a, a.Create(t).ID, 20)
	for from := w.last() - 3; from <= w.last(); from++ {
		lines := a.Events(t, w.id, fmt.Sprintf("after=%d", from)).All(t)
		ends := 0
		for _, l := range lines {
			if l.Type == "end" {
				ends++
			}
		}
		if want := 1; from == w.last() && ends != 0 || from < w.last() && ends != want {
			t.Errorf("after %d of %d: %d ends", from, w.last(), ends)
		}
	}
}
