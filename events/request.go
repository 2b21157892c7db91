package events

import (
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

// attempt is how long one try of a publish or a read may take. An answer that
// was on its way when another server died never comes, so that each try needs an
// end of its own: a caller's context may live as long as a process.
const attempt = 2 * time.Second

// inbox hands messages that arrive under one wildcard subject to whoever waits for
// the last token: one subscription a connection instead of one a request.
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
	case ch <- msg: // a nil channel is nobody waiting
	default:
	}
}

// token gives a token nobody else has.
func (m *inbox) token() string { return strconv.FormatUint(m.next.Add(1), 36) }

// await gives the channel for messages under token; it holds n of them.
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

// stored is one message as the store has it.
type stored struct {
	subject string
	seq     uint64 // in its stream
	prev    uint64 // live messages only: the one before it of the same subject
	after   uint64 // the same, if it was stored under that condition; else unconditional
	time    time.Time
	data    []byte
}

// getRequest asks for messages; it is JetStream's own format.
type getRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	Last      string     `json:"last_by_subj,omitempty"`
	Next      string     `json:"next_by_subj,omitempty"`
	Lasts     []string   `json:"multi_last,omitempty"` // the last message of each
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

const (
	getBatch = 256
	getBytes = 2 << 20
)

// getFrom reads at most n stored messages of subject from stream sequence seq on,
// from the stream's replica that answers first. None: an empty batch.
func (l *Log) getFrom(ctx context.Context, stream, subject string, seq uint64, n int) ([]stored, error) {
	return l.directGet(ctx, stream, getRequest{Seq: max(seq, 1), Next: subject, Batch: n, MaxBytes: getBytes})
}

func (l *Log) directGet(ctx context.Context, stream string, req getRequest) ([]stored, error) {
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
			return out, kind.New(kind.Unavailable, "read", stream, "no answer from the store")
		}
	}
}

// getStatus is what the end of a direct get means: 204 is the end of a batch,
// 404 that there is nothing.
func getStatus(stream, status, text string) error {
	switch status {
	case "204", "404":
		return nil
	case "503":
		return kind.New(kind.Unavailable, "read", stream, "no server has the stream right now")
	}
	return kind.Newf(kind.Internal, "read", stream, "status %s %s", status, text)
}

// parseStored reads a message that JetStream gave or republished.
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

// request sends one request to a leader, once. A server through which no leader answers is
// left for another one.
func (l *Log) request(ctx context.Context, u *unanswered, m *nats.Msg) (*nats.Msg, error) {
	try, cancel := l.attempt(ctx)
	defer cancel()
	began := time.Now()
	msg, err := l.nc.RequestMsgWithContext(try, m)
	if err == nil {
		l.links.answer(u)
		return msg, nil
	}
	// A server that knows no leader says so at once.
	late := errors.Is(err, context.DeadlineExceeded) && time.Since(began) >= attempt || errors.Is(err, nats.ErrNoResponders)
	if late && len(l.nc.Servers()) > 1 && l.links.timeout(u, began, time.Now()) {
		l.log.Warn("switch NATS server: requests are not answered", "subject", m.Subject)
	}
	return msg, err
}

// apiMsg is the leader's answer to a get.
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

// errNoMessage is the code of a get that finds nothing. A stream that the servers do
// not know has the same status, 404: it says nothing about what the stream holds.
const errNoMessage = 10037

// leaderGet reads one message from the stream's leader, never from a replica
// that may lag: what a compare-and-append is decided on. ok is false if there
// is none.
func (l *Log) leaderGet(ctx context.Context, stream string, req getRequest) (m stored, ok bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return stored{}, false, err
	}
	msg, err := l.request(ctx, &l.links.reads, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: body})
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

// lastOf reads a subject's last message from the leader, through outages.
func (l *Log) lastOf(ctx context.Context, stream, subject string) (m stored, ok bool, err error) {
	return l.getThrough(ctx, stream, getRequest{Last: subject})
}

// getThrough is leaderGet through outages.
func (l *Log) getThrough(ctx context.Context, stream string, req getRequest) (m stored, ok bool, err error) {
	for try := 0; ; {
		m, ok, err = l.leaderGet(ctx, stream, req)
		if err == nil || !l.pause(ctx, &try) {
			return m, ok, err
		}
	}
}

// lastSeq is the stream sequence of the last message of a stream, by its leader.
func (l *Log) lastSeq(ctx context.Context, stream string) (uint64, error) {
	m, _, err := l.leaderGet(ctx, stream, getRequest{Last: ">"})
	return m.seq, err
}

// pubAck is JetStream's answer to a publish.
type pubAck struct {
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"`
}

// The codes of a publish whose expectation does not hold, alone and replicated.
const (
	errWrongSequence           = 10071
	errWrongSequenceReplicated = 10164
)

// errExpectation: the subject's last message is not the expected one, or may
// not be. Its reader decides by reading the record.
var errExpectation = errors.New("another message was expected to be the last")

// headerAfter is the condition of a publish, which is stored with it.
const headerAfter = "Nats-Expected-Last-Subject-Sequence"

// unconditional stands for the condition of a message that had none.
const unconditional = math.MaxUint64

// publish stores one message after the subject's message with stream sequence
// after. One try: an error of kind.Unavailable says nothing about the outcome.
func (l *Log) publish(ctx context.Context, subject string, after uint64, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		headerAfter: {strconv.FormatUint(after, 10)},
	}})
}

// publishPlain is publish after whatever is there.
func (l *Log) publishPlain(ctx context.Context, subject string, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data})
}

func (l *Log) publishMsg(ctx context.Context, m *nats.Msg) (uint64, error) {
	seq, err := l.tryPublish(ctx, m)
	if !kind.Is(err, kind.Unavailable) { // stored, or refused for what it is
		l.monitor.appended(m.Subject, nil, time.Now())
	} else if ctx.Err() == nil && l.nc.IsConnected() {
		l.monitor.appended(m.Subject, err, time.Now())
	}
	return seq, err
}

func (l *Log) tryPublish(ctx context.Context, m *nats.Msg) (uint64, error) {
	msg, err := l.request(ctx, &l.links.appends, m)
	if errors.Is(err, nats.ErrMaxPayload) {
		return 0, kind.Newf(kind.Invalid, "append", m.Subject, "%d bytes are more than the record takes at once, which is %d", len(m.Data), l.nc.MaxPayload())
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
