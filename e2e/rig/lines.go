package rig

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Line is one JSON object of /commands or of a record. Missing fields are nil or zero.
type Line struct {
	Raw  string    `json:"-"`
	At   time.Time `json:"-"` // time of arrival
	SSE  SSE       `json:"-"` // fields of the server-sent event, if it was one
	Type string    `json:"type"`
	Seq  uint64    `json:"seq"`

	PID     uint32  `json:"pid"`
	Process string  `json:"process"`
	Data    *string `json:"data"`
	DataB64 *string `json:"data_b64"`
	Offset  *uint64 `json:"offset"`

	ExitCode *int   `json:"exit_code"`
	Signal   *int   `json:"signal"`
	Cause    string `json:"cause"`

	From      string  `json:"from"` // in accepted: the process that it continues
	After     *uint64 `json:"after"`
	ErrorCode string  `json:"error_code"`
	Message   string  `json:"message"`
}

// SSE holds the fields of a server-sent event other than its data.
type SSE struct{ ID, Event string }

// Bytes returns the output in a line.
func (l *Line) Bytes() []byte {
	switch {
	case l.Data != nil:
		return []byte(*l.Data)
	case l.DataB64 != nil:
		b, err := base64.StdEncoding.DecodeString(*l.DataB64)
		if err != nil {
			panic(err)
		}
		return b
	}
	return nil
}

// IsOutput reports whether a line has output.
func (l *Line) IsOutput() bool { return l.Type == "stdout" || l.Type == "stderr" || l.Type == "pty" }

// Lines is an open stream of lines.
type Lines struct {
	Header http.Header
	body   io.ReadCloser
	r      *bufio.Reader
	sse    bool
	cancel context.CancelFunc
}

// streamTimeout bounds every stream of a test.
const streamTimeout = 3 * time.Minute

// Stream opens a stream, NDJSON or SSE depending on the response, and fails the test if it
// is rejected. It is closed at the end of the test at the latest.
func (a *API) Stream(t testing.TB, method, path string, body any, headers ...string) *Lines {
	t.Helper()
	s, ans, err := a.OpenStream(method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if s == nil {
		t.Fatalf("%s %s: %v, want a stream", method, path, ans)
	}
	t.Cleanup(s.Close)
	return s
}

// OpenStream is Stream for requests that may be rejected: then the stream is nil.
func (a *API) OpenStream(method, path string, body any, headers ...string) (*Lines, Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), streamTimeout)
	resp, err := a.open(ctx, method, path, body, headers...)
	if err != nil {
		cancel()
		return nil, Answer{}, err
	}
	ct, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.StatusCode != http.StatusOK || ct != "application/x-ndjson" && ct != "text/event-stream" {
		defer cancel()
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return nil, Answer{resp.StatusCode, resp.Header, raw}, err
	}
	return &Lines{
		Header: resp.Header, body: resp.Body, r: bufio.NewReaderSize(resp.Body, 64<<10),
		sse: ct == "text/event-stream", cancel: cancel,
	}, Answer{}, nil
}

// Commands runs a command in a sandbox; fields are additional names and values of the body.
func (a *API) Commands(t testing.TB, sandbox, cmd string, fields ...any) *Lines {
	t.Helper()
	body := map[string]any{"cmd": cmd}
	for i := 0; i+1 < len(fields); i += 2 {
		body[fmt.Sprint(fields[i])] = fields[i+1]
	}
	return a.Stream(t, http.MethodPost, "/commands", body, "E2b-Sandbox-Id", sandbox)
}

// Events opens a process's record with a query string.
func (a *API) Events(t testing.TB, process, query string, headers ...string) *Lines {
	t.Helper()
	return a.Stream(t, http.MethodGet, "/v1/processes/"+process+"/events?"+query, nil, headers...)
}

// Close closes the stream.
func (s *Lines) Close() {
	s.cancel()
	s.body.Close()
}

// Next returns the next line, or io.EOF after the last.
func (s *Lines) Next() (*Line, error) {
	l := new(Line)
	var err error
	if s.sse {
		err = s.event(l)
	} else {
		l.Raw, err = s.r.ReadString('\n')
		if errors.Is(err, io.EOF) && l.Raw != "" {
			err = fmt.Errorf("line %q has no end: %w", l.Raw, io.ErrUnexpectedEOF)
		}
	}
	if err != nil {
		return nil, err
	}
	l.At = time.Now()
	l.Raw = strings.TrimSuffix(l.Raw, "\n")
	if err := json.Unmarshal([]byte(l.Raw), l); err != nil {
		return nil, fmt.Errorf("%q: %w", l.Raw, err)
	}
	return l, nil
}

// event reads one server-sent event with data. A comment becomes a line of the type
// "comment".
func (s *Lines) event(l *Line) error {
	for {
		text, err := s.r.ReadString('\n')
		if err != nil {
			return err
		}
		text = strings.TrimSuffix(text, "\n")
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case text == "" && l.Raw != "":
			return nil
		case name == "" && text != "":
			l.Raw = `{"type":"comment"}`
		case name == "id":
			l.SSE.ID = value
		case name == "event":
			l.SSE.Event = value
		case name == "data":
			l.Raw += value
		}
	}
}

// Must is Next, and fails the test without a next line.
func (s *Lines) Must(t testing.TB) *Line {
	t.Helper()
	l, err := s.Next()
	if err != nil {
		t.Fatalf("next line: %v", err)
	}
	return l
}

// Until returns all lines up to and including the first that want accepts.
func (s *Lines) Until(t testing.TB, want func(*Line) bool) []*Line {
	t.Helper()
	var out []*Line
	for {
		l, err := s.Next()
		if err != nil {
			t.Fatalf("after %d lines: %v (last: %s)", len(out), err, lastRaw(out))
		}
		if out = append(out, l); want(l) {
			return out
		}
	}
}

// All returns all lines up to the end of the stream.
func (s *Lines) All(t testing.TB) []*Line {
	t.Helper()
	var out []*Line
	for {
		l, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("after %d lines: %v (last: %s)", len(out), err, lastRaw(out))
		}
		out = append(out, l)
	}
}

func lastRaw(ls []*Line) string {
	if len(ls) == 0 {
		return ""
	}
	return ls[len(ls)-1].Raw
}

// Output returns the joined output of one stream.
func Output(ls []*Line, stream string) string {
	var b strings.Builder
	for _, l := range ls {
		if l.Type == stream {
			b.Write(l.Bytes())
		}
	}
	return b.String()
}

// End returns the line of the type "end", which must be the last one.
func End(t testing.TB, ls []*Line) *Line {
	t.Helper()
	if len(ls) == 0 || ls[len(ls)-1].Type != "end" {
		t.Fatalf("the last of %d lines is not an end: %s", len(ls), lastRaw(ls))
	}
	for _, l := range ls[:len(ls)-1] {
		if l.Type == "end" {
			t.Fatalf("an end before the last line: %s", l.Raw)
		}
	}
	return ls[len(ls)-1]
}
