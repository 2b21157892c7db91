package connect

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// TestConnectReplaysFromTheRequestedPosition covers C-032.
func TestConnectReplaysFromTheRequestedPosition(t *testing.T) {
	r := recordOf(surfacetest.Out("one\ntwo\nhalf"), surfacetest.Err("x\n"), surfacetest.Out("\n"), surfacetest.Code(3))
	const (
		one  = `{"event":{"data":{"stdout":"b25lCg=="}},"seq":3,"cursor":"2.4.0"}`
		two  = `{"event":{"data":{"stdout":"dHdvCg=="}},"seq":3,"cursor":"2.8.0"}`
		x    = `{"event":{"data":{"stderr":"eAo="}},"seq":4,"cursor":"2.8.2"}`
		half = `{"event":{"data":{"stdout":"aGFsZgo="}},"seq":5}`
		end  = `{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}},"seq":6}`
		over = `END {}`
	)
	start := func(id process.ID, rest string) string {
		return `{"event":{"start":{"pid":7}},"process":"` + string(id) + `",` + rest + `}`
	}
	for _, tt := range []struct {
		from  string
		start string
		want  []string
	}{
		{"", `"seq":2`, []string{one, two, x, half, end, over}},
		{"0", `"seq":2`, []string{one, two, x, half, end, over}},
		{"1", `"seq":2`, []string{one, two, x, half, end, over}},
		{"4", `"seq":3`, []string{`{"event":{"data":{"stderr":"eAo="}},"seq":4}`, `{"event":{"data":{"stdout":"Cg=="}},"seq":5}`, end, over}},
		{"2.4.0", `"seq":2,"cursor":"2.4.0"`, []string{two, x, half, end, over}},
		{"2.8.2", `"seq":2,"cursor":"2.8.2"`, []string{half, end, over}},
		{"2.10.0", `"seq":2,"cursor":"2.10.0"`, []string{`{"event":{"data":{"stderr":"eAo="}},"seq":4,"cursor":"2.10.2"}`,
			`{"event":{"data":{"stdout":"bGYK"}},"seq":5}`, end, over}},
		{"6", `"seq":5`, []string{end, over}},
		{"7", `"seq":6`, []string{over}},
		{"live", `"seq":5`, []string{end, over}},
	} {
		t.Run("from "+tt.from, func(t *testing.T) {
			for _, sbx := range []string{string(living), string(dead)} {
				f := newFake(nil)
				s := serve(t, f, Config{})
				r.Events[1].Body = process.Started{PID: 7}
				id := f.add(living, 7, r)
				if sbx == string(dead) {
					id = f.add(dead, 7, r)
				}
				got := s.stream(t, "Connect", `{"process":{"pid":7}}`, "E2b-Sandbox-Id: "+sbx, "X-Replay-From: "+tt.from)
				same(t, got.lines(t), append([]string{start(id, tt.start)}, tt.want...))
				got = s.post(t, processService+"Connect?replay_from="+tt.from, typeStreamJSON, envelope(0, `{}`),
					"E2b-Sandbox-Id: ", "X-Process-Id: "+string(id))
				same(t, got.lines(t), append([]string{start(id, tt.start)}, tt.want...))
			}
		})
	}
}

// A gateway that has just started may read a process's record before its own summary of the
// process has the pid. A stream that resumes in the middle still begins with the start.
func TestAStreamThatResumesBeginsWithTheStart(t *testing.T) {
	f := newFake(nil)
	s := serve(t, f, Config{})
	r := recordOf(surfacetest.Code(0))
	r.Events[1].Body = process.Started{PID: 7}
	id := f.add(living, 0, r)
	reply := s.stream(t, "Connect", `{}`, "E2b-Sandbox-Id: ", "X-Process-Id: "+string(id), "X-Replay-From: 4")
	got := reply.lines(t)
	if len(got) == 0 || !strings.Contains(got[0], `{"event":{"start":{"pid":7}}`) {
		t.Errorf("got %q, want the start of pid 7 first", got)
	}
}

func TestInvalidPositionsAreRejected(t *testing.T) {
	f := newFake(nil)
	s := serve(t, f, Config{})
	f.add(living, 7, recordOf(surfacetest.Code(0)))
	for _, tt := range []struct{ from, code string }{
		{"8", "out_of_range"}, {"9223372036854775808", "out_of_range"}, {"18446744073709551615", "out_of_range"},
		{"18446744073709551616", "invalid_argument"}, {"-1", "invalid_argument"}, {"+1", "invalid_argument"}, {"abc", "invalid_argument"},
		{"1.2", "invalid_argument"}, {"1..2", "invalid_argument"}, {"1.2.3.4", "invalid_argument"}, {"99.0.0", "out_of_range"},
	} {
		r := s.stream(t, "Connect", `{"process":{"pid":7}}`, "X-Replay-From: "+tt.from)
		got := r.lines(t)
		if len(got) != 1 || !strings.HasPrefix(got[0], `END {"error":{"code":"`+tt.code+`"`) {
			t.Errorf("from %s: got %q, want %s", tt.from, got, tt.code)
		}
	}
}

func TestConnectToAnUnknownProcess(t *testing.T) {
	f := newFake(nil)
	s := serve(t, f, Config{})
	other := f.add(unknown, 5, recordOf(surfacetest.Code(0)))
	for _, tt := range []struct{ msg, header, want string }{
		{`{"process":{"pid":4242}}`, "", `END {"error":{"code":"not_found","message":"process with pid 4242 not found"}}`},
		{`{"process":{"tag":"t"}}`, "", `END {"error":{"code":"not_found","message":"process with tag t not found"}}`},
		{`{}`, "", `END {"error":{"code":"invalid_argument","message":"process selector is required: pid or tag"}}`},
		{`{}`, string(other), `END {"error":{"code":"not_found","message":"process with id ` + string(other) + ` not found"}}`},
		{`{}`, "../../etc", `END {"error":{"code":"not_found","message":"process not found"}}`},
	} {
		r := s.stream(t, "Connect", tt.msg, "X-Process-Id: "+tt.header)
		same(t, r.lines(t), []string{tt.want})
	}
}

// TestKeepalivesFollowTheRequestedInterval covers C-017.
func TestKeepalivesFollowTheRequestedInterval(t *testing.T) {
	f := newFake(recordOf(surfacetest.Code(0)))
	f.hold = 2
	s := serve(t, f, Config{Keepalive: 20 * time.Millisecond})
	f.add(living, 7, f.script)
	r := s.stream(t, "Connect", `{"process":{"pid":7}}`, "Connect-Timeout-Ms: 3000")
	got := r.lines(t)
	if len(got) < 5 || got[1] != `{"event":{"keepalive":{}}}` {
		t.Errorf("got %q, want keepalives", got)
	}
	if last := got[len(got)-1]; !strings.HasPrefix(last, `END {"error":{"code":"deadline_exceeded"`) {
		t.Errorf("end of stream %s, want the request's timeout", last)
	}
	r = s.stream(t, "Connect", `{"process":{"pid":7}}`, "Connect-Timeout-Ms: 3000", "Keepalive-Ping-Interval: 50")
	if got := r.lines(t); len(got) != 2 {
		t.Errorf("got %q, want no keepalive within 50 s", got)
	}
}

func TestDrainReturnsTheCursor(t *testing.T) {
	f := newFake(recordOf(surfacetest.Out("a\nhalf"), surfacetest.Out("\n"), surfacetest.Code(0)))
	f.hold = 3
	s := serve(t, f, Config{})
	f.add(living, 7, f.script)
	res, err := http.Post(s.base+processService+"Connect?line_flush=never&sandbox="+string(living), typeJSON, strings.NewReader(`{"process":{"pid":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := res.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.streams.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	if want := `"code":"unavailable"`; !strings.Contains(rest.String(), want) || !strings.HasSuffix(rest.String(), `"metadata":{"x-replay-from":["2.2.0"]}}`) {
		t.Errorf("got %q, want %s with the cursor", rest.String(), want)
	}
}

// TestOutputIsOneLinePerEvent covers C-013.
func TestOutputIsOneLinePerEvent(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintln(&b, i+1)
		}
		return b.String()
	}
	for _, tt := range []struct {
		name   string
		bodies []process.Body
		query  string
		want   []string
	}{
		{"seq 1 5", []process.Body{surfacetest.Out(lines(5))}, "", []string{"1\n", "2\n", "3\n", "4\n", "5\n"}},
		{"a line in pieces", []process.Body{surfacetest.Out("a"), surfacetest.Out("b\nc")}, "", []string{"ab\n", "c"}},
		{"C-014 no line end", []process.Body{surfacetest.Out("abc")}, "?line_flush=never", []string{"abc"}},
		{"64 lines", []process.Body{surfacetest.Out(lines(64))}, "", strings.SplitAfter(strings.TrimSuffix(lines(64), "\n"), "\n")[:63]},
		{"many lines", []process.Body{surfacetest.Out(lines(65))}, "", []string{lines(65)}},
		{"a long partial line", []process.Body{surfacetest.Out(strings.Repeat("x", 70<<10)), surfacetest.Out("\n")}, "", []string{strings.Repeat("x", 70<<10), "\n"}},
		{"a long line kept whole", []process.Body{surfacetest.Out(strings.Repeat("x", 70<<10)), surfacetest.Out("\n")}, "?line_flush=never", []string{strings.Repeat("x", 70<<10) + "\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, newFake(recordOf(append(tt.bodies, surfacetest.Code(0))...)), Config{})
			r := s.post(t, processService+"Start"+tt.query, typeStreamJSON, envelope(0, run))
			var got []string
			for _, u := range decoder(false)(t, []byte(r.body)) {
				if u.What == surfacetest.Data {
					got = append(got, string(u.Data))
				}
			}
			if tt.name == "64 lines" {
				if len(got) != 64 || got[63] != "64\n" {
					t.Errorf("%d events, the last is %q", len(got), got[len(got)-1])
				}
				got = got[:63]
			}
			same(t, got, tt.want)
		})
	}
}

// TestAPartialLineIsSentAfterSilence covers C-013.
func TestAPartialLineIsSentAfterSilence(t *testing.T) {
	f := newFake(recordOf(surfacetest.Out("name? "), surfacetest.Out("x\n"), surfacetest.Code(0)))
	f.hold = 3
	s := serve(t, f, Config{})
	f.add(living, 7, f.script)
	r := s.stream(t, "Connect", `{"process":{"pid":7}}`, "Connect-Timeout-Ms: 300")
	want := `{"event":{"data":{"stdout":"` + base64.StdEncoding.EncodeToString([]byte("name? ")) + `"}},"seq":3}`
	if got := r.lines(t); len(got) != 3 || got[1] != want {
		t.Errorf("got %q, want %s", got, want)
	}
	r = s.stream(t, "Connect", `{"process":{"pid":7}}`, "Connect-Timeout-Ms: 300", "X-Line-Flush: never")
	if got := r.lines(t); len(got) != 3 || !strings.HasPrefix(got[2], "END ") {
		t.Errorf("got %q, want the partial line only at the end of the stream", got)
	}
}

// TestALineOf8MiBArrivesIntact covers C-045.
func TestALineOf8MiBArrivesIntact(t *testing.T) {
	line := strings.Repeat("0123456789abcdef", 8<<20/16-1) + "0123456789abcde\n"
	var bodies []process.Body
	for rest := line; rest != ""; {
		n := min(len(rest), 64<<10)
		bodies = append(bodies, surfacetest.Out(rest[:n]))
		rest = rest[n:]
	}
	for _, tt := range []struct {
		query  string
		events int
	}{{"", 64}, {"?line_flush=never", 1}} {
		s := serve(t, newFake(recordOf(append(bodies, surfacetest.Code(0))...)), Config{})
		r := s.post(t, processService+"Start"+tt.query, typeStreamJSON, envelope(0, run))
		units := decoder(false)(t, []byte(r.body))
		var got strings.Builder
		events := 0
		for _, u := range units {
			if got.Write(u.Data); u.What == surfacetest.Data {
				events++
			}
		}
		if got.String() != line || events > tt.events {
			t.Errorf("with %q: %d bytes in %d events, want %d in at most %d", tt.query, got.Len(), events, len(line), tt.events)
		}
	}
}

// A partial line beyond the budget is sent as it is, and nothing of it is lost.
func TestPartialLinesAreBoundedPerTenant(t *testing.T) {
	const budget = 1 << 20
	partial := strings.Repeat("0123456789abcdef", 64<<10/16)
	var bodies []process.Body
	for range 4 * budget / len(partial) {
		bodies = append(bodies, surfacetest.Out(partial), surfacetest.Err(partial))
	}
	r := recordOf(append(bodies, surfacetest.Out("\n"), surfacetest.Code(0))...)
	streams := stream.New(stream.Config{Budget: budget})
	streams.Budget("other").Grow(stream.BaseBudget + budget/2)
	e := &encoder{id: surfacetest.ID, byLine: true, neverFlush: true, keepalive: time.Minute, budget: streams.Budget("a")}
	var all []byte
	for _, ev := range r.Events {
		var err error
		if all, err = e.AppendEvent(all, ev); err != nil {
			t.Fatal(err)
		}
		all, _ = e.AppendIdle(all, 0)
		if buffered, most := e.buffered(), stream.BaseBudget+budget/4; buffered > most || cap(e.partials[0].buf)+cap(e.partials[1].buf) > 3*most {
			t.Fatalf("after event %d the encoder buffers %d bytes, want at most %d", ev.Seq, buffered, most)
		}
	}
	var got [3]int
	for _, u := range decoder(false)(t, e.AppendEnd(all, nil)) {
		if u.What == surfacetest.Data {
			got[u.Stream] += len(u.Data)
		}
	}
	if got[process.Stdout] != 4*budget+1 || got[process.Stderr] != 4*budget {
		t.Errorf("got %v bytes, want %d each and a newline", got, 4*budget)
	}
}

func TestResponsesAreCompressedOnlyWhenAsked(t *testing.T) {
	line := strings.Repeat("abc", 1000) + "\n"
	s := serve(t, newFake(recordOf(surfacetest.Out(line), surfacetest.Code(0))), Config{})
	plain := s.stream(t, "Start", run)
	zipped := s.stream(t, "Start", run, "Connect-Accept-Encoding: br, gzip;q=0.5")
	if plain.header.Get("Connect-Content-Encoding") != "" || zipped.header.Get("Connect-Content-Encoding") != "gzip" {
		t.Errorf("headers %v and %v", plain.header, zipped.header)
	}
	same(t, zipped.lines(t), plain.lines(t))
	if len(zipped.body) > len(plain.body)/4 {
		t.Errorf("%d bytes compressed, %d not", len(zipped.body), len(plain.body))
	}
}

func TestTheOldestPythonClientGetsOnlyTheSchema(t *testing.T) {
	s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
	r := s.stream(t, "Start", run, "User-Agent: connect-python")
	same(t, r.lines(t), []string{`{"event":{"start":{"pid":4711}}}`, `{"event":{"end":{"exitCode":0,` + endLine + `}`, `END {}`})
}

func TestRequestsMayBeCompressed(t *testing.T) {
	zip := string(appendGzip(nil, []byte(run)))
	bomb := string(appendGzip(nil, bytes.Repeat([]byte{' '}, 64<<20)))
	for _, tt := range []struct{ name, contentType, body, header, want string }{
		{"an envelope", typeStreamJSON, envelope(1, zip), "Connect-Content-Encoding: gzip", "END {}"},
		{"an uncompressed envelope", typeStreamJSON, envelope(0, run), "Connect-Content-Encoding: gzip", "END {}"},
		{"a body", typeJSON, zip, "Content-Encoding: gzip", "END {}"},
		{"a compression bomb", typeStreamJSON, envelope(1, bomb), "Connect-Content-Encoding: gzip", `END {"error":{"code":"resource_exhausted","message":"message is larger than the limit of 4194304"}}`},
		{"a compression bomb as a plain body", typeJSON, bomb, "Content-Encoding: gzip", `END {"error":{"code":"resource_exhausted","message":"message is larger than the limit of 4194304"}}`},
		{"invalid gzip", typeStreamJSON, envelope(1, run), "Connect-Content-Encoding: gzip", `END {"error":{"code":"invalid_argument","message":"gzip: gzip: invalid header"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
			r := s.post(t, processService+"Start", tt.contentType, tt.body, tt.header)
			if got := r.lines(t); got[len(got)-1] != tt.want {
				t.Errorf("got %q, want %s", got, tt.want)
			}
		})
	}
}
