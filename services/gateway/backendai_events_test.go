package gateway_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// sent is a server-sent event.
type sent struct {
	id, name string
	data     struct {
		Reason, SessionName, OwnerAccessKey, SessionID string
		ExitCode                                       *int
	}
	raw string
}

// listener reads server-sent events.
type listener struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

// listen opens a stream of events; last is the id of the last event that the client got.
func (s *signer) listen(path, last string) *listener {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	unsent := *s
	unsent.noContentType = true
	unsent.sign(req)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-RateLimit-Limit") == "" {
		s.t.Fatalf("%s: %d %v", path, resp.StatusCode, resp.Header)
	}
	return &listener{s.t, resp, bufio.NewReader(resp.Body)}
}

// next returns the next event, and false at the end of the stream.
func (l *listener) next() (e sent, ok bool) {
	l.t.Helper()
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			return e, false
		}
		if !strings.HasSuffix(line, "\r\n") {
			l.t.Errorf("line %q", line)
		}
		field, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			if e.raw = value; json.Unmarshal([]byte(value), &e.data) != nil {
				l.t.Errorf("data %q is not JSON", value)
			}
		case "":
			if e.name != "" {
				return e, true
			}
		default:
			l.t.Errorf("line %q", line)
		}
	}
}

// until returns the events up to the one with a name.
func (l *listener) until(name string) []sent {
	l.t.Helper()
	var all []sent
	for {
		e, ok := l.next()
		if !ok {
			l.t.Fatalf("the stream ended after %d events", len(all))
		}
		if all = append(all, e); e.name == name {
			return all
		}
	}
}

func names(all []sent) []string {
	out := make([]string, len(all))
	for i, e := range all {
		out[i] = e.name
	}
	return out
}

// life are the events of a session, under the names of all generations of servers.
var life = []string{
	"session_enqueued", "session_scheduled", "session_preparing", "kernel_preparing", "session_creating", "kernel_creating",
	"kernel_started", "session_started", "session_terminating", "kernel_terminating", "kernel_terminated", "session_terminated",
}

// B-035: a tenant gets the events of its sessions, at any gateway, each once after any event.
func TestBackendAIEvents(t *testing.T) {
	f, g := twoGateways(t)
	one, two, bob := f.signer(), g.signer(), f.signer()
	bob.key = bobPairKey
	all, mine := one.listen("/events/session", ""), bob.listen("/v6/events/session?scope=session", "")
	two.create("/session", `{"image":"base","name":"other"}`, 201)
	id := two.create("/session", `{"image":"base","name":"live"}`, 201).SessionID
	two.do("DELETE", "/session/live", "").want(t, "DELETE", 200, "")
	var got []sent
	for _, e := range all.until("session_terminated") {
		if e.data.SessionName == "live" {
			got = append(got, e)
		}
	}
	if !slices.Equal(names(got), life) {
		t.Errorf("%q\nwant %q", names(got), life)
	}
	for _, e := range got {
		if e.id == "" || e.data.SessionID != id || e.data.OwnerAccessKey != pairKey || !strings.Contains(e.raw, `"exitCode":null`) {
			t.Errorf("%s: %s", e.name, e.raw)
		}
	}
	if last := got[len(got)-1]; last.data.Reason != "user-requested" {
		t.Errorf("ended for %q", last.data.Reason)
	}
	for i, after := range got[:len(got)-1] {
		s := []*signer{one, two}[i%2]
		again := s.listen("/events/session?name=live", after.id).until("session_terminated")
		if !slices.Equal(names(again), life[i+1:]) || again[0].id != got[i+1].id {
			t.Errorf("after %s: %q", after.name, names(again))
		}
	}
	for path, want := range map[string][]string{
		"/stream/kernel/_/events?sessionId=live&scope=kernel": {"kernel_preparing", "kernel_creating", "kernel_started", "kernel_terminating", "kernel_terminated"},
		"/events/session?scope=kernel&sessionId=" + id:        {"kernel_preparing", "kernel_creating", "kernel_started", "kernel_terminating", "kernel_terminated"},
		"/v4/events/session?sessionName=live&scope=session&ownerAccessKey=" + pairKey + "&group=default": {
			"session_enqueued", "session_scheduled", "session_preparing", "session_creating", "session_started", "session_terminating", "session_terminated",
		},
	} {
		if again := one.listen(path, "0.0").until(want[len(want)-1]); !slices.Equal(names(again), want) {
			t.Errorf("%s: %q", path, names(again))
		}
	}
	bob.create("/session", `{"image":"base","name":"bobs"}`, 201)
	for _, e := range mine.until("session_started") {
		if e.data.SessionName != "bobs" || e.data.OwnerAccessKey != bobPairKey {
			t.Errorf("another tenant got %+v", e)
		}
	}
}

// B-035: requests for events that are rejected.
func TestBackendAIEventsRejected(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	s.create("/session", `{"image":"base","name":"live"}`, 201)
	for path, want := range map[string]struct {
		code int
		slug string
	}{
		"/events/session?scope=all":                                           {400, "invalid-api-params"},
		"/events/session?ownerAccessKey=" + bobPairKey:                        {403, "generic-forbidden"},
		"/events/session?group=other":                                         {404, "object-not-found"},
		"/events/background-task":                                             {400, "invalid-api-params"},
		"/events/background-task?taskId=x":                                    {400, "invalid-api-params"},
		"/events/background-task?taskId=00000000-0000-8000-8000-000000000000": {404, "object-not-found"},
		"/events/nothing":                                                     {404, "url-not-found"},
	} {
		s.do("GET", path, "").problem(t, path, want.code, want.slug)
	}
	for _, last := range []string{"x", "1", "1.", "-1.0", "18446744073709551615.1", "18446744073709551616.1", "01.1", "1.1\x01"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+f.addr+"/events/session", nil)
		s.sign(req)
		req.Header["Last-Event-ID"] = []string{last}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // no header
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("Last-Event-ID %q: %d", last, resp.StatusCode)
		}
	}
}

// A gateway that drains ends the stream, and the client gets the rest from another gateway.
func TestBackendAIEventsAcrossADrain(t *testing.T) {
	f, g := twoGateways(t)
	l := g.signer().listen("/events/session?scope=session", "")
	f.signer().create("/session", `{"image":"base","name":"live"}`, 201)
	got := l.until("session_started")
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	if e, ok := l.next(); ok {
		t.Errorf("a drain sent %+v", e)
	}
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	f.signer().do("DELETE", "/session/live", "").want(t, "DELETE", 200, "")
	rest := f.signer().listen("/events/session?scope=session", got[len(got)-1].id).until("session_terminated")
	if want := []string{"session_terminating", "session_terminated"}; !slices.Equal(names(rest), want) {
		t.Errorf("%q, want %q", names(rest), want)
	}
}
