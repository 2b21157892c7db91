package durable

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

type header = map[string]string

func serve(t testing.TB, b *recordtest.Gateway) string {
	t.Helper()
	streams := stream.New(stream.Config{})
	h := &Handler{core: b, streams: streams, poll: 200 * time.Millisecond, cycle: 300 * time.Millisecond}
	return recordtest.Serve(t, streams, h.Register)
}

// script returns a record of four events that has ended, or an open one of three.
func script(b *recordtest.Gateway, finished bool) process.ID {
	id, code := process.NewID("i1"), int32(0)
	b.Append(id, process.Accepted{}, process.Started{PID: 7}, process.Wrote{Stream: process.Stdout, Data: []byte("hi\n")})
	if finished {
		b.Append(id, process.Finished{Exit: process.Exit{Code: &code, Cause: process.CauseExited}})
	}
	return id
}

func TestReads(t *testing.T) {
	no := func(names ...string) header {
		h := header{}
		for _, n := range names {
			h[n] = ""
		}
		return h
	}
	tests := []struct {
		name     string
		finished bool
		query    string
		status   int
		messages int    // -1: no body
		next     string // offset
		want     header // of the response; empty: must be absent
	}{
		{"all of an ended record", true, "", 200, 4, offset(4), header{headerUpTo: "true", headerClosed: "true", "Cache-Control": "private, max-age=60, stale-while-revalidate=300"}},
		{"from -1", true, "?offset=-1", 200, 4, offset(4), nil},
		{"all of an open record", false, "?offset=-1", 200, 3, offset(3), header{headerUpTo: "true", headerClosed: "", "Cache-Control": "private, no-cache"}},
		{"the rest", false, "?offset=" + offset(2), 200, 1, offset(3), header{headerUpTo: "true"}},
		{"nothing more", false, "?offset=" + offset(3), 200, 0, offset(3), header{headerUpTo: "true"}},
		{"nothing more of an ended record", true, "?offset=" + offset(4), 200, 0, offset(4), header{headerClosed: "true"}},
		{"now", false, "?offset=now", 200, 0, offset(3), header{headerUpTo: "true", "Cache-Control": "no-store", "Etag": ""}},
		{"long-poll of stored events", false, "?offset=-1&live=long-poll", 200, 2, offset(2), no(headerUpTo, headerClosed)},
		{"long-poll without new events", false, "?offset=" + offset(3) + "&live=long-poll", 204, -1, offset(3), header{headerUpTo: "true", headerClosed: ""}},
		{"long-poll from now without new events", false, "?offset=now&live=long-poll", 204, -1, offset(3), nil},
		{"long-poll of an ended record", true, "?offset=" + offset(4) + "&live=long-poll", 204, -1, offset(4), header{headerClosed: "true", headerUpTo: "true"}},
		{"past the end", true, "?offset=" + offset(5), 400, -1, "", nil},
		{"an invalid offset", true, "?offset=x", 400, -1, "", nil},
		{"long-poll without an offset", true, "?live=long-poll", 400, -1, "", nil},
		{"unknown live", true, "?offset=-1&live=x", 400, -1, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordtest.New("i1")
			id := script(b, tt.finished)
			resp, body := recordtest.Do(t, serve(t, b), recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + tt.query})
			var got []message
			if tt.messages >= 0 {
				if err := json.Unmarshal([]byte(body), &got); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
			}
			if resp.StatusCode != tt.status || len(got) != max(tt.messages, 0) || resp.Header.Get(headerNext) != tt.next {
				t.Errorf("%d, %d messages, next %q: %s", resp.StatusCode, len(got), resp.Header.Get(headerNext), body)
			}
			if tt.status < 300 && resp.Header.Get(headerCursor) == "" {
				t.Error("no cursor")
			}
			for k, v := range tt.want {
				if resp.Header.Get(k) != v {
					t.Errorf("%s: got %q, want %q", k, resp.Header.Get(k), v)
				}
			}
		})
	}
}

func TestALongPollReturnsNewEvents(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, false)
	streams := stream.New(stream.Config{})
	h := &Handler{core: b, streams: streams, poll: 10 * time.Second, cycle: time.Minute}
	url := recordtest.Serve(t, streams, h.Register)
	b.OnWait = sync.OnceFunc(func() { b.Append(id, process.Exited{}, process.Finished{}) })
	resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + "?offset=" + offset(3) + "&live=long-poll"})
	if resp.StatusCode != 200 || resp.Header.Get(headerNext) != offset(5) || resp.Header.Get(headerClosed) != "true" || !strings.Contains(body, `"end"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
}

func TestAKnownResponseIs304(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, false)
	url := serve(t, b)
	req := recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + "?offset=-1"}
	resp, _ := recordtest.Do(t, url, req)
	etag := resp.Header.Get("ETag")
	req.Header = header{"If-None-Match": `"x", W/` + etag}
	if resp, body := recordtest.Do(t, url, req); resp.StatusCode != 304 || body != "" {
		t.Errorf("known: %d %s", resp.StatusCode, body)
	}
	b.Append(id, process.Finished{})
	if resp, _ := recordtest.Do(t, url, req); resp.StatusCode != 200 || resp.Header.Get("ETag") == etag {
		t.Errorf("changed: %d", resp.StatusCode)
	}
}

func TestHeadRetentionAndWrites(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, true)
	url, path := serve(t, b), "/v1/streams/"+string(id)
	resp, _ := recordtest.Do(t, url, recordtest.Request{Method: "HEAD", Path: path})
	if resp.StatusCode != 200 || resp.Header.Get(headerNext) != offset(4) || resp.Header.Get(headerClosed) != "true" ||
		resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("HEAD: %d %v", resp.StatusCode, resp.Header)
	}
	for _, method := range []string{"PUT", "POST", "PATCH", "DELETE"} {
		if resp, body := recordtest.Do(t, url, recordtest.Request{Method: method, Path: path}); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	b.Forget(id, 3)
	if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: path + "?offset=" + offset(1)}); resp.StatusCode != 410 {
		t.Errorf("gone: %d %s", resp.StatusCode, body)
	}
	for _, headers := range []header{{recordtest.HeaderTenant: "t2"}, {recordtest.HeaderSandbox: "i2"}} {
		if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: path + "?offset=" + offset(2), Header: headers}); resp.StatusCode != 404 {
			t.Errorf("%v: %d %s", headers, resp.StatusCode, body)
		}
	}
}

func TestChunksJoinUp(t *testing.T) {
	b, id := recordtest.New("i1"), process.NewID("i1")
	b.Append(id, process.Accepted{})
	big := []byte(strings.Repeat("x", 200<<10))
	for range 20 {
		b.Append(id, process.Wrote{Stream: process.Stdout, Data: big})
	}
	b.Append(id, process.Finished{})
	url, next, reads, seq := serve(t, b), "-1", 0, uint64(0)
	for closed := false; !closed && reads < 99; reads++ {
		resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + "?offset=" + next})
		var got []message
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			if seq++; m.Seq != seq {
				t.Fatalf("seq %d, want %d", m.Seq, seq)
			}
		}
		next, closed = resp.Header.Get(headerNext), resp.Header.Get(headerClosed) == "true"
		if upTo := resp.Header.Get(headerUpTo) == "true"; upTo != closed {
			t.Errorf("read %d: up to date %v, closed %v", reads, upTo, closed)
		}
	}
	if seq != 22 || reads < 4 {
		t.Errorf("%d events in %d reads", seq, reads)
	}
}

func TestSSEEndsAfterItsCycleAndReportsUpToDate(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, false)
	resp := recordtest.Open(t, serve(t, b), recordtest.Request{Method: "GET", Path: "/v1/streams/" + string(id) + "?offset=now&live=sse&cursor=5"})
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(body), `event: control`+"\n"+`data: {"streamNextOffset":"`+offset(3)+`","streamCursor":"`) ||
		!strings.Contains(string(body), `"upToDate":true}`) || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v %v %q", err, resp.Header, body)
	}
}

func TestCursorsNeverGoBack(t *testing.T) {
	now := time.Unix(cursorEpoch+1000*cursorInterval, 0)
	for client, ok := range map[string]func(string) bool{
		"":                        func(c string) bool { return c == "1000" },
		"abc":                     func(c string) bool { return c == "1000" },
		"999":                     func(c string) bool { return c == "1000" },
		"1000":                    func(c string) bool { return len(c) == 4 && c > "1000" && c <= "1181" },
		"2000":                    func(c string) bool { return len(c) == 4 && c > "2000" },
		"-5":                      func(c string) bool { return c == "1000" },
		"99999999999999999999999": func(c string) bool { return c == "1000" },
	} {
		if got := nextCursor(client, now); !ok(got) {
			t.Errorf("cursor after %q: %s", client, got)
		}
	}
}

func TestOffsetsSortAsStrings(t *testing.T) {
	prev := offset(0)
	for _, seq := range []uint64{1, 9, 10, 99, 100, 1 << 40, 1<<64 - 1} {
		o := offset(seq)
		p, err := parseOffset(o)
		if o <= prev || err != nil || p.After != seq {
			t.Errorf("%q after %q: %+v, %v", o, prev, p, err)
		}
		prev = o
	}
}
