package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// reader is a client of one surface that keeps its position in a record.
type reader interface {
	// read reads from its position at a gateway into l. It returns nil at the end of the
	// record, and otherwise a wrongError or the reason to reconnect.
	read(ctx context.Context, a *rig.API, l *ledger) error
}

// errReconnect reports that the gateway requested a reconnect.
var errReconnect = errors.New("reconnect")

const comeBackPause = 2 * time.Millisecond

// follow reads a record to its end, on one gateway after another.
func follow(ctx context.Context, l *ledger, r reader, apis []*rig.API, first int) {
	for turn := first; ; turn++ {
		err := r.read(ctx, apis[turn%len(apis)], l)
		if err == nil || isWrong(err) || ctx.Err() != nil {
			l.settle(errors.Join(err, ctx.Err()))
			return
		}
		l.reconnects.Add(1)
		if !errors.Is(err, errReconnect) && !errors.Is(err, io.EOF) {
			l.cut(err)
		}
		select {
		case <-time.After(comeBackPause):
		case <-ctx.Done():
		}
	}
}

// refused returns the error for a response that is not a stream.
func refused(ans rig.Answer) error {
	if rig.Retryable(ans.Status) {
		return fmt.Errorf("response %v", ans)
	}
	return wrong("response %v", ans)
}

// eventsReader reads /v1/processes/{id}/events, as NDJSON or as SSE.
type eventsReader struct {
	id          string
	sse         bool
	after       uint64
	offsets     map[string]uint64
	disconnects int  // remaining disconnects after a single event
	lost        bool // a lost host is expected
}

func (r *eventsReader) read(ctx context.Context, a *rig.API, l *ledger) error {
	path := fmt.Sprintf("/v1/processes/%s/events?after=%d", r.id, r.after)
	var headers []string
	if r.sse {
		path = fmt.Sprintf("/v1/processes/%s/events", r.id)
		headers = []string{"Accept", "text/event-stream", "Last-Event-ID", fmt.Sprint(r.after)}
	}
	s, ans, err := a.OpenStream(http.MethodGet, path, nil, headers...)
	if err != nil {
		return err
	}
	if s == nil {
		return refused(ans)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Close)()
	for {
		line, err := s.Next()
		if err != nil {
			return err
		}
		ended, err := r.take(line, l)
		switch {
		case err != nil:
			return err
		case ended:
			if more, err := s.Next(); err == nil && more.Type != "comment" {
				return wrong("after the end: %s", more.Raw)
			}
			return nil
		case r.disconnects > 0:
			r.disconnects--
			return errReconnect
		}
	}
}

// take checks one line; ended reports whether it is the record's last.
func (r *eventsReader) take(line *rig.Line, l *ledger) (ended bool, err error) {
	switch line.Type {
	case "keepalive", "comment":
		return false, nil
	case "reconnect":
		if line.After == nil || *line.After != r.after {
			return false, wrong("reconnect after event %d: %s", r.after, line.Raw)
		}
		return false, errReconnect
	}
	if line.Seq != r.after+1 {
		return false, wrong("event %d after event %d: %s", line.Seq, r.after, line.Raw)
	}
	if r.sse && line.SSE.ID != fmt.Sprint(line.Seq) {
		return false, wrong("id %q of event %d", line.SSE.ID, line.Seq)
	}
	r.after = line.Seq
	switch {
	case line.IsOutput():
		b := line.Bytes()
		if r.offsets == nil {
			r.offsets = map[string]uint64{}
		}
		if line.Offset == nil || *line.Offset != r.offsets[line.Type] {
			return false, wrong("offset of %s is not %d: %.200s", line.Type, r.offsets[line.Type], line.Raw)
		}
		r.offsets[line.Type] += uint64(len(b))
		return false, l.output(b)
	case line.Type == "start":
		return false, l.started(line.PID)
	case line.Type == "end":
		return true, l.ended(line.ExitCode, line.Cause)
	case line.Type == "gap" || line.Type == "truncated" || line.Type == "error" || line.Type == "lost" && !r.lost:
		return false, wrong("%s", line.Raw)
	}
	return false, nil
}

// commandsReader reads /commands/{id}/stream, and follows its redirect to the record.
type commandsReader struct {
	id       string
	received int // lines received
	next     *eventsReader
}

func (r *commandsReader) read(ctx context.Context, a *rig.API, l *ledger) error {
	if r.next != nil {
		return r.next.read(ctx, a, l)
	}
	s, ans, err := a.OpenStream(http.MethodGet, fmt.Sprintf("/commands/%s/stream?skip=%d", r.id, r.received), nil)
	if err != nil {
		return err
	}
	if s == nil {
		return refused(ans)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Close)()
	for {
		line, err := s.Next()
		if err != nil {
			return err
		}
		switch {
		case line.Type == "reconnect" && line.After != nil:
			next := &eventsReader{id: r.id, after: *line.After}
			if err := next.readOffsets(a); err != nil {
				return err
			}
			r.next = next
			return errReconnect
		case line.Type == "end":
			return l.ended(line.ExitCode, line.Cause)
		case line.Type == "start":
			err = l.started(line.PID)
		case line.IsOutput():
			err = l.output(line.Bytes())
		default:
			err = wrong("%s", line.Raw)
		}
		if err != nil {
			return err
		}
		r.received++
	}
}

// readOffsets reads the output offsets at a position from another surface.
func (r *eventsReader) readOffsets(a *rig.API) error {
	r.offsets = map[string]uint64{}
	ans, err := a.Call(http.MethodGet, fmt.Sprintf("/v1/processes/%s/events?follow=0", r.id), nil)
	if err != nil {
		return err
	}
	if ans.Status != http.StatusOK {
		return refused(ans)
	}
	for raw := range strings.Lines(string(ans.Body)) {
		var line rig.Line
		if err := json.Unmarshal([]byte(raw), &line); err != nil || line.Seq > r.after {
			return err
		}
		if line.Type == "reconnect" {
			return errReconnect
		}
		if line.IsOutput() {
			r.offsets[line.Type] += uint64(len(line.Bytes()))
		}
	}
	return nil
}

// connectReader reads process.Process/Connect.
type connectReader struct {
	sandbox, id string
	position    string // value for X-Replay-From
	disconnects int    // remaining disconnects after a single message
}

func (r *connectReader) read(ctx context.Context, a *rig.API, l *ledger) error {
	headers := []string{"E2b-Sandbox-Id", r.sandbox, "X-Process-Id", r.id}
	if r.position != "" {
		headers = append(headers, "X-Replay-From", r.position)
	}
	s, err := a.TryDial(rig.Message("/process.Process/Connect", map[string]any{}, headers...))
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Close)()
	if s.Status != http.StatusOK {
		return refused(rig.Answer{Status: s.Status})
	}
	for at := r.position; r.disconnects == 0 || r.position == at; {
		e, err := s.Next()
		if err != nil {
			return err
		}
		if e.Flags&rig.FlagEnd != 0 {
			return r.last(e.Payload, l)
		}
		if err := r.take(e, l); err != nil {
			return err
		}
	}
	r.disconnects--
	return errReconnect
}

// last checks the last envelope.
func (r *connectReader) last(payload []byte, l *ledger) error {
	var words struct {
		Error    *rig.ConnectError   `json:"error"`
		Metadata map[string][]string `json:"metadata"`
	}
	if err := json.Unmarshal(payload, &words); err != nil {
		return wrong("last envelope %q", payload)
	}
	cause := strings.Join(words.Metadata["x-end-cause"], " ")
	l.mu.Lock()
	ended := l.end != nil
	l.mu.Unlock()
	switch {
	case words.Error == nil && ended && cause == "":
		return nil
	case words.Error != nil && words.Error.Code == "unavailable" && cause == "sandbox_gone":
		return l.ended(nil, cause)
	case words.Error != nil && words.Error.Code == "unavailable" && cause == "":
		return errReconnect
	}
	return wrong("last envelope %s", payload)
}

func (r *connectReader) take(e rig.Envelope, l *ledger) error {
	m, err := rig.Decode(e)
	if err != nil {
		return wrong("%v", err)
	}
	switch {
	case m.Event.Start != nil:
		return l.started(m.Event.Start.PID)
	case m.Event.End != nil:
		code := m.Event.End.ExitCode
		return l.ended(&code, m.Event.End.Status)
	case m.Event.Data != nil:
		_, b := m.Event.Output()
		var place struct {
			Cursor string `json:"cursor"`
		}
		if err := json.Unmarshal(e.Payload, &place); err != nil {
			return wrong("%v", err)
		}
		if r.position = place.Cursor; r.position == "" {
			r.position = fmt.Sprint(m.Seq + 1)
		}
		return l.output(b)
	}
	return nil
}

// durableReader reads /v1/streams/{id} by long polling; with bytes it reads the bytes of
// stdout.
type durableReader struct {
	id     string
	bytes  bool
	offset string
	events eventsReader // position in the record
}

func (r *durableReader) read(ctx context.Context, a *rig.API, l *ledger) error {
	for ctx.Err() == nil {
		if r.offset == "" {
			r.offset = "-1"
		}
		path := "/v1/streams/" + r.id
		if r.bytes {
			path += "/stdout"
		}
		ans, err := a.Call(http.MethodGet, path+"?live=long-poll&offset="+r.offset, nil)
		if err != nil {
			return err
		}
		if ans.Status != http.StatusOK && ans.Status != http.StatusNoContent {
			return refused(ans)
		}
		next := ans.Header.Get("Stream-Next-Offset")
		if next == "" {
			return wrong("no next offset")
		}
		if err := r.take(ans, l); err != nil {
			return err
		}
		r.offset = next
		if ans.Header.Get("Stream-Closed") == "true" {
			return r.closed(l)
		}
	}
	return ctx.Err()
}

func (r *durableReader) take(ans rig.Answer, l *ledger) error {
	if ans.Status == http.StatusNoContent {
		return nil
	}
	if r.bytes {
		return l.output(ans.Body)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(ans.Body, &all); err != nil {
		return wrong("%.200q: %v", ans.Body, err)
	}
	for _, raw := range all {
		line := &rig.Line{Raw: string(raw)}
		if err := json.Unmarshal(raw, line); err != nil {
			return wrong("%q: %v", raw, err)
		}
		if _, err := r.events.take(line, l); err != nil {
			return err
		}
	}
	return nil
}

// closed handles the end of the stream; with bytes it has no exit code.
func (r *durableReader) closed(l *ledger) error {
	if r.bytes {
		code := counterCode
		return l.ended(&code, "closed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == nil {
		return wrong("closed without an end")
	}
	return nil
}
