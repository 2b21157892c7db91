package textenc

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

var at = time.Date(2026, 11, 21, 3, 4, 5, 6000, time.UTC)

func TestAppendEventEncodesEveryType(t *testing.T) {
	code, tag := int32(0), "build"
	const head = `"time":"2026-11-21T03:04:05.000006Z","type":`
	tests := []struct {
		name string
		body process.Body
		want string
	}{
		{"accepted", process.Accepted{Spec: process.Spec{Cmd: "sh", Args: []string{"-c", "x"}, Cwd: "/", User: "u", Tag: &tag,
			PTY: &process.Size{Cols: 80, Rows: 24}, Stdin: true, Timeout: time.Minute}, Tenant: "secret"},
			`{"seq":7,` + head + `"accepted","cmd":"sh","args":["-c","x"],"cwd":"/","user":"u","tag":"build","pty":{"cols":80,"rows":24},"stdin":true,"timeout_ms":60000}`},
		{"continued in a fork", process.Accepted{Spec: process.Spec{Cmd: "x"}, From: "p-i", After: 7},
			`{"seq":7,` + head + `"accepted","cmd":"x","args":[],"from":"p-i","after":7}`},
		{"minimal accepted", process.Accepted{Spec: process.Spec{Cmd: "true"}}, `{"seq":7,` + head + `"accepted","cmd":"true","args":[]}`},
		{"start", process.Started{PID: 42}, `{"seq":7,` + head + `"start","pid":42}`},
		{"text", process.Wrote{Stream: process.Stdout, Data: []byte("1\n")}, `{"seq":7,` + head + `"stdout","offset":0,"data":"1\n"}`},
		{"bytes", process.Wrote{Stream: process.Stderr, Offset: 9, Data: []byte{0xff}}, `{"seq":7,` + head + `"stderr","offset":9,"data_b64":"/w=="}`},
		{"terminal", process.Wrote{Stream: process.PTY, Data: []byte("\x1b[0m")}, `{"seq":7,` + head + `"pty","offset":0,"data":"\u001b[0m"}`},
		{"stdin", process.StdinAcked{Offset: 3, EOF: true}, `{"seq":7,` + head + `"stdin_ack","offset":3,"eof":true}`},
		{"resized", process.Resized{Size: process.Size{Cols: 1, Rows: 2}}, `{"seq":7,` + head + `"resized","cols":1,"rows":2}`},
		{"signaled", process.Signaled{Signal: 15}, `{"seq":7,` + head + `"signaled","signal":15}`},
		{"omitted", process.Omitted{Stream: process.Stderr, Offset: 4, Bytes: 5}, `{"seq":7,` + head + `"omitted","stream":"stderr","offset":4,"bytes":5}`},
		{"truncated", process.Truncated{Stream: process.Stdout, Dropped: 5}, `{"seq":7,` + head + `"truncated","stream":"stdout","dropped":5}`},
		{"gap", process.Gap{From: 3, To: 7, Reason: "lost"}, `{"seq":7,` + head + `"gap","from":3,"to":7,"reason":"lost"}`},
		{"code 0 is written", process.Exited{Exit: process.Exit{Code: &code, Cause: process.CauseExited}},
			`{"seq":7,` + head + `"exited","exit_code":0,"signal":null,"cause":"exited"}`},
		{"an end by a signal has code -1", process.Finished{Exit: process.Exit{Signal: 9, Cause: process.CauseKilled}},
			`{"seq":7,` + head + `"end","exit_code":-1,"signal":9,"cause":"killed"}`},
		{"an exit that was not observed has no code", process.Finished{Exit: process.Exit{Cause: process.CauseHostLost, Message: "silent"}},
			`{"seq":7,` + head + `"end","exit_code":null,"signal":null,"cause":"host_lost","message":"silent"}`},
		{"lost", process.Lost{Reason: "lease"}, `{"seq":7,` + head + `"lost","reason":"lease"}`},
		{"failed", process.Failed{Kind: uint32(kind.NotFound), Message: "no \"user\""},
			`{"seq":7,` + head + `"error","error_code":"not_found","message":"no \"user\""}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := AppendEvent(nil, &process.Event{Seq: 7, Time: at, Body: tt.body})
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !json.Valid(got) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
}

func FuzzOutputDecodesToItsBytes(f *testing.F) {
	f.Add(uint64(1), uint64(0), []byte("1\n"))
	f.Add(uint64(1<<63), uint64(1<<40), []byte("\xff\x00 \"\\"))
	f.Fuzz(func(t *testing.T, seq, offset uint64, data []byte) {
		line := AppendEvent(nil, &process.Event{Seq: seq, Time: at, Body: process.Wrote{Stream: process.Stdout, Offset: offset, Data: data}})
		var got struct {
			Seq, Offset uint64
			Type        string
			Data        *string
			DataB64     *string `json:"data_b64"`
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got.Seq != seq || got.Offset != offset || got.Type != "stdout" {
			t.Fatalf("got %+v of %s", got, line)
		}
		if utf8.Valid(data) {
			if got.Data == nil || got.DataB64 != nil || *got.Data != string(data) {
				t.Fatalf("text: %s", line)
			}
			return
		}
		if got.Data != nil || got.DataB64 == nil || *got.DataB64 != base64.StdEncoding.EncodeToString(data) {
			t.Fatalf("bytes: %s", line)
		}
	})
}

func TestSSEHasSeqAsIDAndTypeAsEvent(t *testing.T) {
	got := string(AppendSSE(nil, &process.Event{Seq: 3, Time: at, Body: process.Wrote{Stream: process.Stdout, Data: []byte("data: x\n\n")}}))
	want := "id: 3\nevent: stdout\ndata: {\"seq\":3,\"time\":\"2026-11-21T03:04:05.000006Z\",\"type\":\"stdout\",\"offset\":0,\"data\":\"data: x\\n\\n\"}\n\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func BenchmarkAppendEventLine64(b *testing.B) {
	e := process.Event{Seq: 123456, Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Offset: 1 << 20, Data: make([]byte, 64)}}
	for i := range 64 {
		e.Body.(process.Wrote).Data[i] = 'a' + byte(i%26)
	}
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendEvent(dst[:0], &e)
	}
}
