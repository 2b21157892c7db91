package durable

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// twoStreams returns a record with both streams; stdout is "hello world", one frame per word.
func twoStreams(b *recordtest.Gateway, finished bool) process.ID {
	id := process.NewID("i1")
	b.Append(id, process.Accepted{}, process.Started{PID: 7},
		process.Wrote{Stream: process.Stdout, Data: []byte("hello ")}, process.Wrote{Stream: process.Stderr, Data: []byte("\xff")},
		process.Wrote{Stream: process.Stdout, Offset: 6, Data: []byte("world")}, process.StdinAcked{})
	if finished {
		b.Append(id, process.Finished{})
	}
	return id
}

func TestBytes(t *testing.T) {
	tests := []struct {
		name     string
		finished bool
		path     string
		status   int
		body     string
		next     string
		want     header
	}{
		{"all", true, "/stdout", 200, "hello world", mark{11, 5}.String(), header{headerUpTo: "true", headerClosed: "true", "Content-Type": "application/octet-stream"}},
		{"the other stream", true, "/stderr?offset=-1", 200, "\xff", mark{1, 4}.String(), nil},
		{"a stream without bytes", true, "/pty", 200, "", mark{}.String(), header{headerClosed: "true"}},
		{"from a byte", true, "/stdout?offset=3", 200, "lo world", mark{11, 5}.String(), nil},
		{"from a mark", false, "/stdout?offset=" + mark{6, 3}.String(), 200, "world", mark{11, 5}.String(), header{headerUpTo: "true", headerClosed: ""}},
		{"from the end", false, "/stdout?offset=" + mark{11, 5}.String(), 200, "", mark{11, 5}.String(), header{headerUpTo: "true"}},
		{"from the end by bytes", false, "/stdout?offset=11", 200, "", mark{11, 0}.String(), nil},
		{"now", false, "/stdout?offset=now", 200, "", mark{11, 5}.String(), header{headerUpTo: "true", "Cache-Control": "no-store"}},
		{"long-poll of stored bytes", false, "/stdout?offset=6&live=long-poll", 200, "world", mark{11, 5}.String(), nil},
		{"long-poll without new bytes", false, "/stdout?offset=now&live=long-poll", 204, "", mark{11, 5}.String(), header{headerUpTo: "true"}},
		{"long-poll of an ended process", true, "/stdout?offset=now&live=long-poll", 204, "", mark{11, 5}.String(), header{headerClosed: "true"}},
		{"past the end", true, "/stdout?offset=12", 400, "", "", nil},
		{"an invalid offset", true, "/stdout?offset=1_2_3", 400, "", "", nil},
		{"SSE", true, "/stdout?offset=-1&live=sse", 400, "", "", nil},
		{"an unknown stream", true, "/stdin", 404, "", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordtest.New("i1")
			id := twoStreams(b, tt.finished)
			resp, body := recordtest.Do(t, serve(t, b), recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + tt.path})
			if resp.StatusCode != tt.status || resp.Header.Get(headerNext) != tt.next || tt.status < 300 && body != tt.body {
				t.Errorf("%d, next %q: %q", resp.StatusCode, resp.Header.Get(headerNext), body)
			}
			for k, v := range tt.want {
				if resp.Header.Get(k) != v {
					t.Errorf("%s: got %q, want %q", k, resp.Header.Get(k), v)
				}
			}
		})
	}
}

func TestBytesHead(t *testing.T) {
	b := recordtest.New("i1")
	id := twoStreams(b, true)
	resp, _ := recordtest.Do(t, serve(t, b), recordtest.Request{Method: "HEAD", Path: "/v1/streams/" + string(id) + "/stdout"})
	if resp.StatusCode != 200 || resp.Header.Get(headerNext) != (mark{11, 5}).String() || resp.Header.Get(headerClosed) != "true" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

func TestMissingBytesAreGone(t *testing.T) {
	wrote := func(seq process.Seq, offset uint64, data string) process.Event {
		return process.Event{Seq: seq, Body: process.Wrote{Stream: process.Stdout, Offset: offset, Data: []byte(data)}}
	}
	omitted := func(s process.Stream) process.Event {
		return process.Event{Seq: 2, Body: process.Omitted{Stream: s, Offset: 2, Bytes: 3}}
	}
	gap, end := process.Event{Body: process.Gap{From: 2, To: 2}}, process.Event{Body: process.Finished{}}
	tests := []struct {
		name string
		at   mark
		all  []process.Event
		body string
		gone bool
	}{
		{"a gap after other bytes", mark{}, []process.Event{wrote(1, 0, "ab"), wrote(3, 5, "fg")}, "", true},
		{"a gap at the offset", mark{2, 1}, []process.Event{gap, wrote(3, 5, "fg")}, "", true},
		{"after the gap", mark{5, 0}, []process.Event{wrote(1, 0, "ab"), gap, wrote(3, 5, "fg"), end}, "fg", false},
		{"a gap without output", mark{}, []process.Event{wrote(1, 0, "ab"), gap, wrote(3, 2, "c"), end}, "abc", false},
		{"a gap before the end", mark{}, []process.Event{wrote(1, 0, "ab"), gap, end}, "", true},
		{"output that is not kept", mark{}, []process.Event{wrote(1, 0, "ab"), omitted(process.Stdout), end}, "", true},
		{"output that is not kept, which the client has", mark{5, 0}, []process.Event{omitted(process.Stdout), wrote(3, 5, "fg")}, "fg", false},
		{"output of the other stream that is not kept", mark{}, []process.Event{wrote(1, 0, "ab"), omitted(process.Stderr), end}, "ab", false},
		{"a gap of a running process", mark{}, []process.Event{wrote(1, 0, "ab"), gap}, "ab", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := &output{stream: process.Stdout, at: tt.at}
			_, err := o.add(tt.all)
			if kind.Is(err, kind.Gone) != tt.gone || (err == nil) == tt.gone || !tt.gone && string(o.body) != tt.body {
				t.Errorf("got %q, %v", o.body, err)
			}
		})
	}
}

// Consecutive reads yield the whole stream, regardless of its frames.
func TestBytesJoinUp(t *testing.T) {
	b, id, rng := recordtest.New("i1"), process.NewID("i1"), rand.New(rand.NewPCG(1, 2))
	b.Append(id, process.Accepted{})
	var want []byte
	for len(want) < 5<<20 {
		data := bytes.Repeat([]byte{byte(rng.Uint32())}, 1+rng.IntN(300<<10))
		b.Append(id, process.Wrote{Stream: process.PTY, Offset: uint64(len(want)), Data: data}, process.StdinAcked{})
		want = append(want, data...)
	}
	b.Append(id, process.Finished{})
	url, next, got := serve(t, b), "-1", []byte(nil)
	for range 50 {
		resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + "/pty?offset=" + next})
		got = append(got, body...)
		if to := resp.Header.Get(headerNext); to < next && next != "-1" {
			t.Fatalf("offset %s after %s", to, next)
		}
		next = resp.Header.Get(headerNext)
		if resp.Header.Get(headerClosed) == "true" {
			break
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}

func TestALongPollOfBytesWaitsForItsStream(t *testing.T) {
	b := recordtest.New("i1")
	id := twoStreams(b, false)
	streams := stream.New(stream.Config{})
	h := &Handler{core: b, streams: streams, poll: 10 * time.Second, cycle: time.Minute}
	url := recordtest.Serve(t, streams, h.Register)
	b.OnWait = sync.OnceFunc(func() {
		b.Append(id, process.Wrote{Stream: process.Stderr, Offset: 1, Data: []byte("no")})
		b.Append(id, process.Wrote{Stream: process.Stdout, Offset: 11, Data: []byte("!")})
	})
	resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + "/stdout?offset=now&live=long-poll"})
	if resp.StatusCode != 200 || body != "!" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func FuzzParseMarkFailsAsInvalid(f *testing.F) {
	for _, s := range []string{"", "-1", "5", "5_6", "_", "5_", "18446744073709551616", strings.Repeat("0", 20) + "_" + strings.Repeat("9", 20)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parseMark(s); err != nil && !kind.Is(err, kind.Invalid) {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
