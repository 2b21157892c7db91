package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/kind"
)

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

// ErrExpectation reports that the subject's last message is not, or may not be, the
// expected one. The caller decides by reading the record.
var ErrExpectation = errors.New("another message was expected to be the last")

// headerAfter is the condition of a publish. It is stored with the message.
const headerAfter = "Nats-Expected-Last-Subject-Sequence"

// unconditional replaces the condition of a message without one.
const unconditional = math.MaxUint64

// Publish stores one message after the subject's message with stream sequence after. It
// makes one attempt: after an error of kind.Unavailable the outcome is unknown.
func (l *Conn) Publish(ctx context.Context, subject string, after uint64, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		headerAfter: {strconv.FormatUint(after, 10)},
	}})
}

// PublishPlain is Publish without a condition.
func (l *Conn) PublishPlain(ctx context.Context, subject string, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data})
}

// PublishAtEnd is Publish under the condition that the last message of the whole stream has
// the stream sequence end.
func (l *Conn) PublishAtEnd(ctx context.Context, subject string, end uint64, data []byte) (uint64, error) {
	return l.publishMsg(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		"Nats-Expected-Last-Sequence": {strconv.FormatUint(end, 10)},
	}})
}

// PublishExpiring stores one message, which the server removes after ttl. It makes one attempt: after an
// error of kind.Unavailable the outcome is unknown.
func PublishExpiring(ctx context.Context, l *Conn, subject string, data []byte, ttl time.Duration) error {
	once, cancel := l.boundAppend(ctx, subject)
	defer cancel()
	_, err := l.publishMsg(once, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		"Nats-TTL": {strconv.FormatInt(int64(ttl/time.Second), 10) + "s"},
	}})
	return err
}

// PublishUnacked sends a message. It does not wait until the message is stored.
func (l *Conn) PublishUnacked(subject string, data []byte) error { return l.nc.Publish(subject, data) }

func (l *Conn) publishMsg(ctx context.Context, m *nats.Msg) (uint64, error) {
	seq, err := l.tryPublish(ctx, m)
	if !kind.Is(err, kind.Unavailable) { // stored, or rejected as invalid
		l.Monitor.appended(m.Subject, nil, time.Now())
	} else if ctx.Err() == nil && l.Connected() {
		l.Monitor.appended(m.Subject, err, time.Now())
	}
	return seq, err
}

func (l *Conn) tryPublish(ctx context.Context, m *nats.Msg) (uint64, error) {
	msg, err := l.request(ctx, m)
	if errors.Is(err, nats.ErrMaxPayload) {
		return 0, kind.Newf(kind.Invalid, "append", m.Subject, "%d bytes exceed the message size limit of %d", len(m.Data), l.nc.MaxPayload())
	}
	if err != nil {
		return 0, Unavailable("append", m.Subject, err)
	}
	if seq, ok := storedAt(msg.Data); ok {
		l.Ends.stored(m.Subject, seq)
		return seq, nil
	}
	var ack pubAck
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("append %s: %w", m.Subject, err)
	}
	switch {
	case ack.Error == nil:
		l.Ends.stored(m.Subject, ack.Seq)
		return ack.Seq, nil
	case ack.Error.ErrCode == errWrongSequence || ack.Error.ErrCode == errWrongSequenceReplicated:
		return 0, ErrExpectation
	}
	return 0, kind.New(kind.Unavailable, "append", m.Subject, ack.Error.Description)
}

// storedAt returns the stream sequence in the response to a publish that was stored. It reads
// the form that servers send, {"stream":"NAME","seq":123, and leaves all others to encoding/json,
// which takes 20 times as long.
func storedAt(ack []byte) (seq uint64, ok bool) {
	if !bytes.HasPrefix(ack, []byte(`{"stream":"`)) {
		return 0, false
	}
	_, rest, found := bytes.Cut(ack, []byte(`","seq":`))
	n := 0
	for ; n < len(rest) && n < maxDigits && '0' <= rest[n] && rest[n] <= '9'; n++ {
		seq = 10*seq + uint64(rest[n]-'0')
	}
	whole := n < len(rest) && (rest[n] == '}' || rest[n] == ',')
	return seq, found && whole && seq > 0
}

const maxDigits = 19 // of a number that fits into 64 bits

// Put stores data as the next message of subject after the one with stream sequence rev. It
// retries through outages until ctx ends.
//
// It returns Conflict if another writer was first, Invalid if data exceeds the message size
// limit.
func (l *Conn) Put(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	begin := time.Now()
	seq, err := l.put(ctx, stream, subject, rev, data)
	if err == nil {
		observe.Since(l.To.Append, begin)
	}
	return seq, err
}

func (l *Conn) put(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	for try := 0; ; {
		once, cancel := l.boundAppend(ctx, subject)
		got, err := l.Publish(once, subject, rev, data)
		cancel()
		if err == nil || kind.Is(err, kind.Invalid) {
			return got, err
		}
		if err := l.unwritable(ctx, subject); err != nil {
			return 0, err
		}
		if errors.Is(err, ErrExpectation) {
			got, err := l.resolve(ctx, stream, subject, rev, data)
			if err != nil || got != 0 {
				return got, err
			}
		}
		if !l.Backoff(ctx, &try) {
			return 0, Unavailable("append", subject, err)
		}
	}
}

// PutOnce stores data under a subject, once: a repeated call with the same id within two
// minutes stores nothing. It retries through outages until ctx ends; after an error of
// kind.Unavailable the data may or may not be stored.
func (l *Conn) PutOnce(ctx context.Context, subject, id string, data []byte) error {
	msg := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{"Nats-Msg-Id": {id}}}
	for try := 0; ; {
		once, cancel := l.boundAppend(ctx, subject)
		_, err := l.publishMsg(once, msg)
		cancel()
		if err == nil {
			return nil
		}
		if err := l.unwritable(ctx, subject); err != nil {
			return err
		}
		if !l.Backoff(ctx, &try) {
			return Unavailable("append", id, err)
		}
	}
}

// PutNew stores the first message of a new record. Its subject may hold an older record
// only if over reports that one as ended. The leader is asked, because views forget ended
// records before the log drops them.
func (l *Conn) PutNew(ctx context.Context, stream, subject string, data []byte, over func(Message) bool) error {
	for {
		m, ok, err := l.LastOf(ctx, stream, subject)
		switch {
		case err != nil:
			return Unavailable("append", subject, err)
		case ok && bytes.Equal(m.Data, data):
			return nil // stored by an earlier attempt whose ack was lost
		case ok && !over(m):
			return kind.New(kind.Conflict, "append", subject, "another writer was first")
		}
		if _, err = l.Put(ctx, stream, subject, m.Seq, data); !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// PutLast stores data as the last message of subject, whatever the subject holds.
func (l *Conn) PutLast(ctx context.Context, stream, subject string, data []byte) error {
	for {
		m, _, err := l.LastOf(ctx, stream, subject)
		if err != nil {
			return err
		}
		if _, err = l.Put(ctx, stream, subject, m.Seq, data); !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// resolve asks the leader why the expectation of a message did not hold. An earlier attempt
// was stored and its ack lost (returns its rev), another writer was first (Conflict), or
// neither (0). Our message can only be the next one after rev; others may have followed it
// since.
func (l *Conn) resolve(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	m, ok, err := l.RetryLeaderGet(ctx, stream, GetRequest{Seq: rev + 1, Next: subject})
	switch {
	case err != nil:
		return 0, err
	case ok && bytes.Equal(m.Data, data):
		return m.Seq, nil
	case !ok:
		// Nothing follows; the expected message may have been dropped too.
		if m, _, err = l.LastOf(ctx, stream, subject); err != nil || m.Seq == rev {
			return 0, err
		}
	}
	return 0, kind.New(kind.Conflict, "append", subject, "another writer was first")
}
