package tail

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

type header = map[string]string

// log is a Tailer that yields its events, then blocks if asked to follow.
type log struct {
	events []catalog.TailEvent
	err    error

	mu   sync.Mutex
	f    catalog.TailFilter
	over bool
}

func (l *log) Tail(ctx context.Context, f catalog.TailFilter, fn func(catalog.TailEvent) error) error {
	l.mu.Lock()
	l.f = f
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
	}()
	for _, e := range l.events {
		if err := fn(e); err != nil {
			return err
		}
	}
	if l.err != nil || !f.Follow {
		return l.err
	}
	<-ctx.Done()
	return ctx.Err()
}

// faulty is a Tailer that panics.
type faulty struct{}

func (faulty) Tail(context.Context, catalog.TailFilter, func(catalog.TailEvent) error) error {
	panic("no word")
}

func TestAPanicEndsItsTail(t *testing.T) {
	s := newSource(faulty{}, catalog.TailFilter{}, slog.New(slog.DiscardHandler), wanted(""))
	defer s.Close()
	if _, err := s.Next(t.Context(), 0); !kind.Is(err, kind.Internal) {
		t.Errorf("got %v", err)
	}
}

func (l *log) filter() catalog.TailFilter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f
}

const id = process.ID("01jd0000000000000000000000-i1")

// two returns one event of each kind of record.
func two() []catalog.TailEvent {
	return []catalog.TailEvent{
		{Stream: "sandbox", Rev: 3, Tenant: "t1", Sandbox: "i1", Change: &sandbox.Event{Seq: 1, Time: recordtest.Epoch(),
			Body: sandbox.Requested{Template: "base", Defaults: sandbox.Defaults{Env: map[string]string{"KEY": "canary"}}, Metadata: map[string]string{"a": "b"}}}},
		{Stream: "process", Rev: 9, Tenant: "t1", Sandbox: "i1", ID: id, Host: "h1", Process: &process.Event{Seq: 4, Time: recordtest.Epoch().Add(time.Second),
			Body: process.Truncated{Stream: process.Stdout, Dropped: 5}}},
	}
}

const (
	line1 = `{"record":"sandbox","rev":3,"tenant":"t1","sandbox":"i1","seq":1,"time":"2026-01-02T03:04:05Z","type":"requested","template":"base","metadata":{"a":"b"}}`
	line2 = `{"record":"process","rev":9,"tenant":"t1","sandbox":"i1","process":"` + string(id) + `","host":"h1","seq":4,"time":"2026-01-02T03:04:06Z","type":"truncated","stream":"stdout","dropped":5}`
)

func serve(t *testing.T, l *log, operator bool) (url string, streams *stream.Streams) {
	t.Helper()
	streams = stream.New(stream.Config{})
	h := New(Config{Log: l, Streams: streams, Operator: func(core.Principal) bool { return operator }})
	return recordtest.Serve(t, streams, h.Register), streams
}

func TestTailReturnsTheEventsOfAllRecords(t *testing.T) {
	tests := []struct {
		name, query string
		header      header
		want        string
	}{
		{"NDJSON", "", nil, line1 + "\n" + line2 + "\n"},
		{"SSE", "", header{"Accept": "text/event-stream"}, "id: 2026-01-02T03:04:05Z\nevent: requested\ndata: " + line1 +
			"\n\nid: 2026-01-02T03:04:06Z\nevent: truncated\ndata: " + line2 + "\n\n"},
		{"of a kind of record", "&kind=process", nil, line2 + "\n"},
		{"of a type", "&kind=start,requested", nil, line1 + "\n"},
		{"of no type", "&kind=x", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := serve(t, &log{events: two()}, false)
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/events?follow=0" + tt.query, Header: tt.header})
			if resp.StatusCode != 200 || body != tt.want {
				t.Errorf("%d\n%s\nwant\n%s", resp.StatusCode, body, tt.want)
			}
			for line := range strings.Lines(body) {
				if strings.HasPrefix(line, "{") && !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
		})
	}
}

func TestFilterFollowsThePrincipal(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name, query string
		header      header
		operator    bool
		status      int
		want        catalog.TailFilter
	}{
		{"a tenant sees its own", "", nil, false, 200, catalog.TailFilter{Tenant: "t1"}},
		{"a tenant names itself", "&tenant=t1", nil, false, 200, catalog.TailFilter{Tenant: "t1"}},
		{"a tenant names another", "&tenant=t2", nil, false, 403, catalog.TailFilter{}},
		{"an operator sees all", "", nil, true, 200, catalog.TailFilter{}},
		{"an operator names a tenant", "&tenant=t2", nil, true, 200, catalog.TailFilter{Tenant: "t2"}},
		{"a token sees its sandbox", "", header{recordtest.HeaderSandbox: "i1"}, true, 200, catalog.TailFilter{Tenant: "t1", Sandbox: "i1"}},
		{"a token names another sandbox", "&sandbox=i2", header{recordtest.HeaderSandbox: "i1"}, true, 404, catalog.TailFilter{}},
		{"of a sandbox and a process", "&sandbox=i1&process=" + string(id), nil, false, 200, catalog.TailFilter{Tenant: "t1", Sandbox: "i1", Process: id}},
		{"of an invalid process", "&process=*", nil, false, 404, catalog.TailFilter{}},
		{"of an invalid sandbox", "&sandbox=%3E", nil, false, 404, catalog.TailFilter{}},
		{"since", "&after=2026-01-01T00:00:00Z", nil, false, 200, catalog.TailFilter{Tenant: "t1", Since: since}},
		{"a browser that reconnects", "&after=now", header{"Last-Event-ID": "2026-01-01T00:00:00Z"}, false, 200, catalog.TailFilter{Tenant: "t1", Since: since}},
		{"since a negative duration", "&after=-5m", nil, false, 400, catalog.TailFilter{}},
		{"since a seq", "&after=5", nil, false, 400, catalog.TailFilter{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &log{}
			url, _ := serve(t, l, tt.operator)
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/events?follow=0" + tt.query, Header: tt.header})
			if resp.StatusCode != tt.status || l.filter() != tt.want {
				t.Errorf("%d %+v %s", resp.StatusCode, l.filter(), body)
			}
		})
	}
}

func TestDrainEndsTheTailWithAPosition(t *testing.T) {
	l := &log{events: two()}
	url, streams := serve(t, l, false)
	resp := recordtest.Open(t, url, recordtest.Request{Method: "GET", Path: "/v1/events"})
	r := bufio.NewReader(resp.Body)
	for range 2 {
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := streams.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if want := `{"type":"reconnect","after":"2026-01-02T03:04:06Z"}` + "\n"; err != nil || string(rest) != want {
		t.Errorf("got %s, %v", rest, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		t.Error("the Tail continues")
	}
}

func TestAnErrorIsReported(t *testing.T) {
	url, _ := serve(t, &log{events: two()[:1], err: kind.New(kind.Internal, "tail", "", "")}, false)
	_, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/events"})
	if want := line1 + "\n" + `{"type":"error","error_code":"internal","message":"internal","after":"2026-01-02T03:04:05Z"}` + "\n"; body != want {
		t.Errorf("got %s, want %s", body, want)
	}
}

func TestChangesNeverShowTheEnvironment(t *testing.T) {
	for _, body := range []sandbox.Body{
		sandbox.Requested{Defaults: sandbox.Defaults{Env: map[string]string{"K": "canary"}}}, sandbox.Placed{Host: "h"}, sandbox.Refused{Kind: 6, Reason: "full"},
		sandbox.Running{Driver: "d"}, sandbox.DeadlineSet{Deadline: recordtest.Epoch()}, sandbox.Stopping{Cause: "user"},
		sandbox.Destroyed{Cause: "user"}, sandbox.Lost{Reason: "r"}, sandbox.Failed{Message: "m"},
	} {
		got := appendChange(nil, &sandbox.Event{Seq: 2, Time: recordtest.Epoch(), Body: body})
		var c change
		if err := json.Unmarshal(got, &c); err != nil || c.Seq != 2 || c.Type == "" || strings.Contains(string(got), "canary") {
			t.Errorf("%T: %s, %v", body, got, err)
		}
	}
}

func FuzzParseSinceFailsAsInvalid(f *testing.F) {
	for _, s := range []string{"", "now", "10m", "-10m", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00", "9999999h", "x"} {
		f.Add(s)
	}
	now := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parseSince(s, now); err != nil && !kind.Is(err, kind.Invalid) {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
