package screens

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

type fixture struct {
	t    *testing.T
	book *recordtest.Gateway
	h    *Handler
	url  string
}

func serve(t *testing.T, size int) *fixture {
	t.Helper()
	f := &fixture{t: t, book: recordtest.New("i1")}
	streams := stream.New(stream.Config{})
	f.h = New(Config{Records: f.book, Streams: streams, Cache: size})
	f.url = recordtest.Serve(t, streams, f.h.Register)
	return f
}

func (f *fixture) get(path string) (int, string) {
	f.t.Helper()
	resp, body := recordtest.Do(f.t, f.url, recordtest.Request{Method: http.MethodGet, Path: path})
	return resp.StatusCode, body
}

func wrote(format string, args ...any) process.Wrote {
	return process.Wrote{Stream: process.PTY, Data: fmt.Appendf(nil, format, args...)}
}

func exit(code int32) process.Finished {
	return process.Finished{Exit: process.Exit{Code: &code, Cause: process.CauseExited}}
}

// terminal begins the record of a terminal of 20 by 3.
func (f *fixture) terminal(bodies ...process.Body) process.ID {
	id := process.NewID("i1")
	spec := process.Spec{Cmd: "sh", PTY: &process.Size{Cols: 20, Rows: 3}}
	f.book.Append(id, append([]process.Body{process.Accepted{Spec: spec}, process.Started{PID: 7}}, bodies...)...)
	return id
}

func TestScreen(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("\x1b]2;top\x07\x1b[1;31mred\x1b[m 日\r\n"), wrote("\x1b[?1049hfull"), process.Resized{Size: process.Size{Cols: 10, Rows: 2}}, exit(0))
	path := "/v1/processes/" + string(id) + "/screen"
	tests := []struct {
		query  string
		status int
		want   string
	}{
		{"?seq=3", 200, `{"seq":3,"last":6,"ended":true,"cols":20,"rows":3,"title":"top","alt":false,"cursor":{"x":0,"y":1,"visible":true},"lines":[[{"t":"red","f":1,"a":1},{"t":" "},{"t":"日","w":2}],[],[]]}`},
		{"?seq=2", 200, `{"seq":2,"last":6,"ended":true,"cols":20,"rows":3,"title":"","alt":false,"cursor":{"x":0,"y":0,"visible":true},"lines":[[],[],[]]}`},
		{"", 200, `{"seq":6,"last":6,"ended":true,"cols":10,"rows":2,"title":"top","alt":true,"cursor":{"x":4,"y":1,"visible":true},"lines":[[],[{"t":"full"}]]}`},
		{"?seq=7", 400, `{"code":400,"message":"out of range; the last event is 6","error_code":"out_of_range","last":6}`},
		{"?seq=x", 400, `position: must be a seq`},
	}
	for _, tt := range tests {
		if status, got := f.get(path + tt.query); status != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%q: %d\n%s, want %d\n%s", tt.query, status, got, tt.status, tt.want)
		}
	}
	if status, _ := f.get("/v1/processes/" + string(process.NewID("i1")) + "/screen"); status != 404 {
		t.Errorf("a process that does not exist: %d", status)
	}
	resp, _ := recordtest.Do(t, f.url, recordtest.Request{Method: "GET", Path: path, Header: map[string]string{recordtest.HeaderTenant: "t2"}})
	if resp.StatusCode != 404 {
		t.Errorf("another tenant: %d", resp.StatusCode)
	}
}

func TestScreenWithoutTerminal(t *testing.T) {
	f := serve(t, 0)
	id := process.NewID("i1")
	f.book.Append(id, process.Accepted{Spec: process.Spec{Cmd: "ls"}}, process.Started{PID: 7}, wrote("a\nb\n"))
	_, got := f.get("/v1/processes/" + string(id) + "/screen")
	if !strings.Contains(got, `"cols":80,"rows":24`) || !strings.Contains(got, `"lines":[[{"t":"a"}],[{"t":"b"}],[]`) {
		t.Error(got)
	}
}

// A record of which nothing is left is gone, and has no empty screen.
func TestScreenAfterRetention(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("one\r\n"), exit(0))
	f.book.Forget(id, 5)
	for _, path := range []string{"/screen", "/screen/live", "/timeline"} {
		if status, got := f.get("/v1/processes/" + string(id) + path); status != 410 {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
}

// A screen is the same with key frames, without them, and with few of them.
func TestKeyFrames(t *testing.T) {
	var all []process.Body
	const events = 64
	for i := range events {
		all = append(all, wrote("\x1b[3%dm%s\r\n\x1b]2;%d\x07e\u0301", i%8, strings.Repeat(fmt.Sprint(i), 16<<10), i))
	}
	full, small := serve(t, 0), serve(t, 1200)
	a, b := full.terminal(all...), small.terminal(all...)
	full.get("/v1/processes/" + string(a) + "/screen")
	if n := len(full.h.folds.cache.byID[a]); n < 4 {
		t.Fatalf("%d key frames", n)
	}
	for seq := events + 2; seq > 2; seq -= 7 {
		query := fmt.Sprintf("/screen?seq=%d", seq)
		_, x := full.get("/v1/processes/" + string(a) + query)
		_, y := small.get("/v1/processes/" + string(b) + query)
		cold := serve(t, 0)
		c := cold.terminal(all...)
		if _, z := cold.get("/v1/processes/" + string(c) + query); x != z || y != z {
			t.Fatalf("seq %d:\n%s\n%s\n%s", seq, x, y, z)
		}
	}
	if c := small.h.folds.cache; c.free < 0 || c.byUse.Len() == 0 {
		t.Errorf("the cache has %d frames and %d bytes left", c.byUse.Len(), c.free)
	}
	if n := len(full.h.folds.locks.held); n != 0 {
		t.Errorf("%d locks are held", n)
	}
}

// sse reads one event.
type sse struct{ id, name, data string }

func next(t *testing.T, r *bufio.Reader) sse {
	t.Helper()
	var e sse
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.name != "" {
				return e
			}
		}
	}
}

func TestLive(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("one\r\n"))
	resp := recordtest.Open(t, f.url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/screen/live"})
	r := bufio.NewReader(resp.Body)
	if e := next(t, r); e.name != "screen" || e.id != "3" || !strings.Contains(e.data, `"lines":[[{"t":"one"}],[],[]]`) {
		t.Fatal(e)
	}
	f.book.Append(id, wrote("two"))
	if e := next(t, r); e.name != "rows" || e.id != "4" || !strings.HasSuffix(e.data, `"rows":{"1":[{"t":"two"}]}}`) {
		t.Fatal(e)
	}
	f.book.Append(id, process.Resized{Size: process.Size{Cols: 10, Rows: 2}})
	if e := next(t, r); e.name != "resize" || e.data != `{"seq":5,"cols":10,"rows":2}` {
		t.Fatal(e)
	}
	if e := next(t, r); e.name != "rows" || !strings.HasSuffix(e.data, `"rows":{"0":[{"t":"one"}],"1":[{"t":"two"}]}}`) {
		t.Fatal(e)
	}
	f.book.Append(id, exit(3))
	var e sse
	for e.name != "end" {
		e = next(t, r)
	}
	if e.data != `{"seq":6,"status":"exited","code":3}` {
		t.Fatal(e)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the stream continues after the end")
	}
}

// A watcher from an earlier event receives its screen, then the present one.
func TestLiveFromAnEvent(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("one\r\n"), wrote("two"), exit(0))
	_, body := f.get("/v1/processes/" + string(id) + "/screen/live?seq=3")
	r := bufio.NewReader(strings.NewReader(body))
	if e := next(t, r); e.name != "screen" || e.id != "3" || !strings.Contains(e.data, `[{"t":"one"}],[],[]`) {
		t.Fatal(e)
	}
	if e := next(t, r); e.name != "rows" || e.id != "5" || !strings.Contains(e.data, `"1":[{"t":"two"}]`) {
		t.Fatal(e)
	}
	if e := next(t, r); e.name != "end" {
		t.Fatal(e)
	}
	_, body = f.get("/v1/processes/" + string(id) + "/screen/live")
	r = bufio.NewReader(strings.NewReader(body))
	if e := next(t, r); e.name != "screen" || e.id != "5" {
		t.Fatal(e)
	}
	if e := next(t, r); e.name != "end" {
		t.Fatal(e)
	}
}

// All watchers see the same screen in the end, and share one fold, which ends after them.
func TestManyWatchers(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal()
	const watchers = 50
	type result struct {
		lines map[string]json.RawMessage
	}
	results := make(chan result, watchers)
	for range watchers {
		resp := recordtest.Open(t, f.url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/screen/live"})
		go func() {
			r := bufio.NewReader(resp.Body)
			out := result{lines: make(map[string]json.RawMessage)}
			for e := (sse{}); e.name != "end"; {
				e = next(t, r)
				var rows struct{ Rows json.RawMessage }
				if json.Unmarshal([]byte(e.data), &rows) == nil && e.name == "rows" {
					var changed map[string]json.RawMessage
					if err := json.Unmarshal(rows.Rows, &changed); err != nil {
						t.Error(err)
					}
					for y, l := range changed {
						out.lines[y] = l
					}
				}
			}
			results <- out
		}()
	}
	for i := range 200 {
		f.book.Append(id, wrote("line %d\r\n", i))
	}
	f.book.Append(id, exit(0))
	for range watchers {
		if got := <-results; string(got.lines["0"]) != `[{"t":"line 198"}]` || string(got.lines["1"]) != `[{"t":"line 199"}]` {
			t.Fatalf("got %s", got.lines)
		}
	}
	f.h.hubs.mu.Lock()
	defer f.h.hubs.mu.Unlock()
	if n := len(f.h.hubs.all); n != 0 {
		t.Errorf("%d hubs are left", n)
	}
}

func TestTimeline(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("12345"), process.Signaled{Signal: 15}, process.Resized{Size: process.Size{Cols: 10, Rows: 2}}, wrote("678"), exit(3))
	status, body := f.get("/v1/processes/" + string(id) + "/timeline?buckets=10")
	var got timelineBody
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	var bytes uint64
	for _, b := range got.Buckets {
		bytes += b.Bytes
	}
	var marks []string
	for _, m := range got.Marks {
		marks = append(marks, fmt.Sprint(m.Seq, " ", m.Kind, " ", m.Text))
	}
	if got.First != 1 || got.Last != 7 || got.End == nil || bytes != 8 {
		t.Errorf("%s", body)
	}
	if want := "2 start pid 7|4 signal signal 15|5 resize 10x2|7 exit exited, code 3"; strings.Join(marks, "|") != want {
		t.Errorf("got %q", marks)
	}
	if status, body := f.get("/v1/processes/" + string(id) + "/timeline?buckets=0"); status != 400 {
		t.Errorf("no buckets: %d %s", status, body)
	}
}

// The samples of an index add up, however many events there are.
func TestIndexIsBounded(t *testing.T) {
	i := &index{step: 1}
	const events = 5*maxSamples + 3
	for n := range events {
		i.add(&process.Event{Seq: process.Seq(n + 1), Time: recordtest.Epoch().Add(time.Duration(n) * time.Second), Body: wrote("abc")})
	}
	if len(i.samples) > maxSamples {
		t.Errorf("%d samples", len(i.samples))
	}
	var bytes uint64
	last := process.Seq(0)
	for _, b := range i.body(100).Buckets {
		bytes += b.Bytes
		if b.Seq < last {
			t.Fatalf("bucket of %d after %d", b.Seq, last)
		}
		last = b.Seq
	}
	if bytes != 3*events {
		t.Errorf("got %d bytes, want %d", bytes, 3*events)
	}
}

// What differs between two frames is encoded once for the watchers that have the one before, and is right for
// those that have an older one.
func TestChangesAreShared(t *testing.T) {
	f := &folded{screen: newScreen(&process.Spec{PTY: &process.Size{Cols: 20, Rows: 3}})}
	var frames []*frame
	for i := range 3 {
		f.add(&process.Event{Seq: process.Seq(i + 1), Body: wrote("\x1b[%d;1Hline %d", i+1, i)})
		var before *frame
		if i > 0 {
			before = frames[i-1]
		}
		frames = append(frames, frameOf(f, before))
	}
	near, far := frames[2].changes(frames[1]), frames[2].changes(frames[0])
	if &near[0] != &frames[2].changes(frames[1])[0] {
		t.Error("the changes of the next frame were encoded twice")
	}
	for _, tt := range []struct {
		name      string
		got, want string
	}{
		{"the next frame", string(near), string(frames[2].rowsSince(frames[1]))},
		{"a frame skipped", string(far), string(frames[2].rowsSince(frames[0]))},
	} {
		if tt.got != tt.want || !strings.Contains(tt.got, "line 2") {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
	if strings.Contains(string(near), "line 1") || !strings.Contains(string(far), "line 1") {
		t.Errorf("line 1 is in %s or not in %s", near, far)
	}
}
