package store

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// request sends one request to a leader, once. It switches away from a server through which
// no leader responds.
func (l *session) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	began := time.Now()
	msg, err := l.exchange(ctx, m)
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

// exchange sends a message and waits for its response, bounded like [session.attempt].
//
// RequestMsgWithContext of nats.go would need a context of the attempt, with a timer and a
// function to call when the connection breaks: 12 allocations more for each stored message.
func (l *session) exchange(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	broken := l.unbroken().Done()
	token := l.answers.token()
	ch, done := l.answers.await(token, 1)
	defer done()
	m.Reply = l.answers.prefix + token
	l.sending.RLock()
	err := l.nc.PublishMsg(m)
	l.sending.RUnlock()
	if err != nil {
		return nil, err
	}
	late := startTimer(attempt)
	defer stopTimer(late)
	select {
	case msg := <-ch:
		if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
			return nil, nats.ErrNoResponders
		}
		return msg, nil
	case <-late.C:
		return nil, context.DeadlineExceeded
	case <-broken:
		return nil, context.Canceled
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// timers is the pool of stopped timers.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(attempt)
	t.Stop()
	return t
}}

func startTimer(d time.Duration) *time.Timer {
	t := timers.Get().(*time.Timer) //nolint:errcheck,forcetypeassert // only timers are put
	t.Reset(d)
	return t
}

func stopTimer(t *time.Timer) {
	t.Stop()
	timers.Put(t)
}

// leaderless reports whether a response comes from a server that knows no leader, instead of
// from a leader: the server may be cut off from the others.
func leaderless(data []byte) bool {
	return len(data) < 512 && bytes.Contains(data, []byte(`"err_code":`+errNoLeader))
}

// errNoLeader is the code of a server's response for a stream, or a cluster, without a
// leader that the server knows.
const errNoLeader = "10008"
