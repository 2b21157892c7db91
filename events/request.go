package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/kind"
)

// attempt bounds one attempt to publish or read. A response that was in flight when another
// server crashed never arrives, so each attempt needs a timeout of its own: the caller's
// context may last as long as a process.
const attempt = 2 * time.Second

// inbox delivers messages under one wildcard subject to the request identified by the last
// token: one subscription per connection instead of one per request.
type inbox struct {
	prefix string
	next   atomic.Uint64

	mu      sync.Mutex
	waiting map[string]chan *nats.Msg
}

func (m *inbox) open(nc *nats.Conn, prefix string) error {
	m.prefix = prefix + "."
	m.waiting = make(map[string]chan *nats.Msg)
	sub, err := nc.Subscribe(m.prefix+"*", m.deliver)
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(-1, -1)
}

func (m *inbox) deliver(msg *nats.Msg) {
	token := msg.Subject[len(m.prefix):]
	m.mu.Lock()
	ch := m.waiting[token]
	m.mu.Unlock()
	select {
	case ch <- msg: // nil if no request waits
	default:
	}
}

// token returns a new token.
func (m *inbox) token() string { return strconv.FormatUint(m.next.Add(1), 36) }

// await returns a channel for messages under token, with a buffer for n of them.
func (m *inbox) await(token string, n int) (ch <-chan *nats.Msg, done func()) {
	c := make(chan *nats.Msg, n)
	m.mu.Lock()
	m.waiting[token] = c
	m.mu.Unlock()
	return c, func() {
		m.mu.Lock()
		delete(m.waiting, token)
		m.mu.Unlock()
	}
}

// stored is one stored message.
type stored struct {
	subject string
	seq     uint64 // in its stream
	prev    uint64 // live messages only: stream sequence of the previous message of the subject
	after   uint64 // the same, if the message was stored under that condition; otherwise unconditional
	time    time.Time
	data    []byte
}

// getRequest requests messages in JetStream's own format.
type getRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	Last      string     `json:"last_by_subj,omitempty"`
	Next      string     `json:"next_by_subj,omitempty"`
	Lasts     []string   `json:"multi_last,omitempty"` // subjects; the last message of each is returned
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

const (
	getBatch = 256
	getBytes = 2 << 20
)

// getFrom reads at most n stored messages of subject from stream sequence seq on, from the
// replica that answers first. If none exist, the batch is empty.
func (l *conn) getFrom(ctx context.Context, stream, subject string, seq uint64, n int) ([]stored, error) {
	return l.directGet(ctx, stream, getRequest{Seq: max(seq, 1), Next: subject, Batch: n, MaxBytes: getBytes})
}

func (l *conn) directGet(ctx context.Context, stream string, req getRequest) ([]stored, error) {
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
		return nil, unavailable("read", stream, err)
	}
	var out []stored
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
func parseStored(msg *nats.Msg) (stored, error) {
	seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("sequence of a stored message: %w", err)
	}
	s := stored{subject: msg.Header.Get("Nats-Subject"), seq: seq, data: msg.Data}
	s.prev, _ = strconv.ParseUint(msg.Header.Get("Nats-Last-Sequence"), 10, 64) //nolint:errcheck // absent: 0
	if s.after, err = strconv.ParseUint(msg.Header.Get(headerAfter), 10, 64); err != nil {
		s.after = unconditional
	}
	s.time, _ = time.Parse(time.RFC3339Nano, msg.Header.Get("Nats-Time-Stamp")) //nolint:errcheck // absent: zero
	return s, nil
}

// request sends one request to a leader, once. It switches away from a server through which
// no leader responds.
func (l *conn) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	try, cancel := l.attempt(ctx)
	defer cancel()
	began := time.Now()
	msg, err := l.nc.RequestMsgWithContext(try, m)
	if err == nil && !leaderless(msg.Data) {
		l.links.answer(m.Subject)
		return msg, nil
	}
	// A server without a known leader answers at once.
	late := err == nil || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, context.DeadlineExceeded) && time.Since(began) >= attempt
	if late && len(l.nc.Servers()) > 1 && l.links.timeout(m.Subject, began, time.Now()) {
		l.log.Warn("switch NATS server: requests are not answered", "subject", m.Subject)
	}
	return msg, err
}

// leaderless reports whether a response comes from a server that knows no leader, instead of
// from a leader: the server may be cut off from the others.
func leaderless(data []byte) bool {
	return len(data) < 512 && bytes.Contains(data, []byte(`"err_code":`+errNoLeader))
}

// errNoLeader is the code of a server's response for a stream, or a cluster, without a
// leader that the server knows.
const errNoLeader = "10008"

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

// leaderGet reads one message from the stream's leader, never from a replica, which may
// lag: a compare-and-append is based on it. ok is false if the message does not exist.
func (l *conn) leaderGet(ctx context.Context, stream string, req getRequest) (m stored, ok bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return stored{}, false, err
	}
	msg, err := l.request(ctx, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: body})
	if err != nil {
		return stored{}, false, unavailable("read", stream, err)
	}
	var ans apiMsg
	if err := json.Unmarshal(msg.Data, &ans); err != nil {
		return stored{}, false, fmt.Errorf("read %s: %w", stream, err)
	}
	switch {
	case ans.Error != nil && ans.Error.ErrCode == errNoMessage:
		return stored{}, false, nil
	case ans.Error != nil:
		return stored{}, false, kind.New(kind.Unavailable, "read", stream, ans.Error.Description)
	case ans.Message == nil:
		return stored{}, false, nil
	}
	g := ans.Message
	return stored{subject: g.Subject, seq: g.Seq, time: g.Time, data: g.Data}, true, nil
}

// lastOf reads a subject's last message from the leader. It retries through outages.
func (l *conn) lastOf(ctx context.Context, stream, subject string) (m stored, ok bool, err error) {
	return l.retryLeaderGet(ctx, stream, getRequest{Last: subject})
}

// retryLeaderGet is leaderGet with retries through outages.
func (l *conn) retryLeaderGet(ctx context.Context, stream string, req getRequest) (m stored, ok bool, err error) {
	for try := 0; ; {
		m, ok, err = l.leaderGet(ctx, stream, req)
		if err == nil || !l.backoff(ctx, &try) {
			return m, ok, err
		}
	}
}

// lastSeq returns the stream sequence of the last message of a stream, from its leader.
func (l *conn) lastSeq(ctx context.Context, stream string) (uint64, error) {
	m, _, err := l.leaderGet(ctx, stream, getRequest{Last: ">"})
	return m.seq, err
}

// pubAck is JetStream's response to a publish.
type pubAck struct {
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"`
}

// Error codes of a publish whose expectation does not hold, without and with replicas.
const (
	errWrongSequence           = 10071
	errWrongSequenceReplicated = 10164
)

// errExpectation reports that the subject's last message is not, or may not be, the
// expected one. The caller decides by reading the record.
var errExpectation = errors.New("another message was expected to be the last")

// headerAfter is the condition of a publish. It is stored with the message.
const headerAfter = "Nats-Expected-Last-Subject-Sequence"

// unconditional replaces the condition of a message without one.
const unconditional = math.MaxUint64

// publish stores one message after the subject's message with stream sequence after. It
// makes one attempt: after an error of kind.Unavailable the outcome is unknown.
func (l *conn) publish(ctx context.Context, subject string, after uint64, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		headerAfter: {strconv.FormatUint(after, 10)},
	}})
}

// publishPlain is publish without a condition.
func (l *conn) publishPlain(ctx context.Context, subject string, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data})
}

func (l *conn) publishMsg(ctx context.Context, m *nats.Msg) (uint64, error) {
	seq, err := l.tryPublish(ctx, m)
	if !kind.Is(err, kind.Unavailable) { // stored, or rejected as invalid
		l.monitor.appended(m.Subject, nil, time.Now())
	} else if ctx.Err() == nil && l.nc.IsConnected() {
		l.monitor.appended(m.Subject, err, time.Now())
	}
	return seq, err
}

func (l *conn) tryPublish(ctx context.Context, m *nats.Msg) (uint64, error) {
	msg, err := l.request(ctx, m)
	if errors.Is(err, nats.ErrMaxPayload) {
		return 0, kind.Newf(kind.Invalid, "append", m.Subject, "%d bytes exceed the message size limit of %d", len(m.Data), l.nc.MaxPayload())
	}
	if err != nil {
		return 0, unavailable("append", m.Subject, err)
	}
	var ack pubAck
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("append %s: %w", m.Subject, err)
	}
	switch {
	case ack.Error == nil:
		return ack.Seq, nil
	case ack.Error.ErrCode == errWrongSequence || ack.Error.ErrCode == errWrongSequenceReplicated:
		return 0, errExpectation
	}
	return 0, kind.New(kind.Unavailable, "append", m.Subject, ack.Error.Description)
}
