package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/kind"
)

// Message is one stored message.
type Message struct {
	Subject string
	Seq     uint64 // in its stream
	Prev    uint64 // live messages only: stream sequence of the previous message of the subject
	After   uint64 // the same, if the message was stored under that condition; otherwise unconditional
	Time    time.Time
	Data    []byte
}

// GetRequest requests messages in JetStream's own format.
type GetRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	Last      string     `json:"last_by_subj,omitempty"`
	Next      string     `json:"next_by_subj,omitempty"`
	Lasts     []string   `json:"multi_last,omitempty"` // subjects; the last message of each is returned
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

// Limits of one read of the messages of a subject.
const (
	BatchSize  = 256
	BatchBytes = 2 << 20
)

// GetFrom reads at most n stored messages of subject from stream sequence seq on, from the
// replica that answers first. If none exist, the batch is empty.
func (l *Conn) GetFrom(ctx context.Context, stream, subject string, seq uint64, n int) ([]Message, error) {
	return l.DirectGet(ctx, stream, GetRequest{Seq: max(seq, 1), Next: subject, Batch: n, MaxBytes: BatchBytes})
}

// DirectGet reads stored messages in a single attempt, from the replica that answers first. It
// returns those that it got, also with an error.
func (l *Conn) DirectGet(ctx context.Context, stream string, req GetRequest) (out []Message, err error) {
	defer func() { l.Ends.read(stream, out) }()
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	token := l.gets.token()
	ch, done := l.gets.await(token, max(req.Batch, len(req.Lasts), 1)+1)
	defer done()
	try, cancel := l.attempt(ctx)
	defer cancel()
	if err := l.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, l.gets.prefix+token, body); err != nil {
		return nil, Unavailable("read", stream, err)
	}
	for {
		select {
		case msg := <-ch:
			if status := msg.Header.Get("Status"); status != "" {
				return out, getStatus(stream, status, msg.Header.Get("Description"))
			}
			m, err := parseStored(msg)
			if err != nil {
				return out, err
			}
			if out = append(out, m); req.Batch == 0 && len(req.Lasts) == 0 {
				return out, nil
			}
		case <-try.Done():
			if err := ctx.Err(); err != nil {
				return out, err
			}
			return out, kind.New(kind.Unavailable, "read", stream, "the store did not respond")
		}
	}
}

// getStatus interprets the status of a direct get: 204 ends a batch, 404 means no message.
func getStatus(stream, status, text string) error {
	switch status {
	case "204", "404":
		return nil
	case "503":
		return kind.New(kind.Unavailable, "read", stream, "no server has the stream right now")
	}
	return kind.Newf(kind.Internal, "read", stream, "status %s %s", status, text)
}

// parseStored parses a message that JetStream returned or republished.
func parseStored(msg *nats.Msg) (Message, error) {
	seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("sequence of a stored message: %w", err)
	}
	s := Message{Subject: msg.Header.Get("Nats-Subject"), Seq: seq, Data: msg.Data}
	s.Prev, _ = strconv.ParseUint(msg.Header.Get("Nats-Last-Sequence"), 10, 64) // absent: 0
	if s.After, err = strconv.ParseUint(msg.Header.Get(headerAfter), 10, 64); err != nil {
		s.After = unconditional
	}
	s.Time, _ = time.Parse(time.RFC3339Nano, msg.Header.Get("Nats-Time-Stamp")) // absent: zero
	return s, nil
}

// apiMsg is the leader's response to a get.
type apiMsg struct {
	Error   *apiError `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// errNoMessage is the code of a get that finds nothing. A stream unknown to the servers has
// the same status, 404, which implies nothing about the stream's content.
const errNoMessage = 10037

// LeaderGet reads one message from the stream's leader, never from a replica, which may
// lag: a compare-and-append is based on it. ok is false if the message does not exist.
func (l *Conn) LeaderGet(ctx context.Context, stream string, req GetRequest) (m Message, ok bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Message{}, false, err
	}
	msg, err := l.request(ctx, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: body})
	if err != nil {
		return Message{}, false, Unavailable("read", stream, err)
	}
	var ans apiMsg
	if err := json.Unmarshal(msg.Data, &ans); err != nil {
		return Message{}, false, fmt.Errorf("read %s: %w", stream, err)
	}
	switch {
	case ans.Error != nil && ans.Error.ErrCode == errNoMessage:
		return Message{}, false, nil
	case ans.Error != nil:
		return Message{}, false, kind.New(kind.Unavailable, "read", stream, ans.Error.Description)
	case ans.Message == nil:
		return Message{}, false, nil
	}
	g := ans.Message
	l.Ends.of(stream).raise(g.Seq)
	return Message{Subject: g.Subject, Seq: g.Seq, Time: g.Time, Data: g.Data}, true, nil
}

// LastOf reads a subject's last message from the leader. It retries through outages.
func (l *Conn) LastOf(ctx context.Context, stream, subject string) (m Message, ok bool, err error) {
	return l.RetryLeaderGet(ctx, stream, GetRequest{Last: subject})
}

// RetryLeaderGet is LeaderGet with retries through outages.
func (l *Conn) RetryLeaderGet(ctx context.Context, stream string, req GetRequest) (m Message, ok bool, err error) {
	for try := 0; ; {
		m, ok, err = l.LeaderGet(ctx, stream, req)
		if err == nil || !l.Backoff(ctx, &try) {
			return m, ok, err
		}
	}
}

// LastSeq returns the stream sequence of the last message of a stream, from its leader.
func (l *Conn) LastSeq(ctx context.Context, stream string) (uint64, error) {
	m, _, err := l.LeaderGet(ctx, stream, GetRequest{Last: ">"})
	if err == nil {
		l.Ends.answered(stream, m.Seq)
	}
	return m.Seq, err
}

// ReadOne reads one message from the replica that answers first, or from the leader if that
// replica does not have it.
func (l *Conn) ReadOne(ctx context.Context, stream string, req GetRequest) (m Message, ok bool, err error) {
	for try := 0; ; {
		got, err := l.DirectGet(ctx, stream, req)
		switch {
		case err == nil && len(got) > 0:
			return got[0], true, nil
		case err == nil:
			return l.RetryLeaderGet(ctx, stream, req)
		case !l.Backoff(ctx, &try):
			return Message{}, false, err
		}
	}
}

// FirstSince returns the stream sequence of the first message at or after a time, or that
// of the last message if there is none.
func (l *Conn) FirstSince(ctx context.Context, stream string, at time.Time) (uint64, error) {
	got, err := l.DirectGet(ctx, stream, GetRequest{Next: ">", StartTime: &at, Batch: 1})
	if err != nil {
		return 0, err
	}
	if len(got) > 0 {
		return got[0].Seq, nil
	}
	last, err := l.LastSeq(ctx, stream)
	return last, err // the last message stays: it marks how far readers must read
}
