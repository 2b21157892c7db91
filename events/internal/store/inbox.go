package store

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/internal/streams"
)

// inbox delivers messages under one wildcard subject to the request identified by the next
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
	sub, err := nc.Subscribe(m.prefix+">", m.deliver)
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(-1, -1)
}

func (m *inbox) deliver(msg *nats.Msg) {
	token, _, _ := strings.Cut(msg.Subject[len(m.prefix):], ".")
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

// Reply is a message that another service sends to this one.
type Reply struct {
	Subject string // under which it must be stored

	l    *Conn
	ch   <-chan *nats.Msg
	done func()
	back <-chan struct{}
}

// NewReply returns a reply to wait for. The caller must close it.
func (l *Conn) NewReply() *Reply {
	token := l.replies.token()
	ch, done := l.replies.await(token, 1)
	return &Reply{Subject: streams.ReplyPrefix + l.id + "." + token, l: l, ch: ch, done: done, back: l.Reconnected()}
}

// Close releases the reply.
func (r *Reply) Close() { r.done() }

// Wait returns the message when it arrives. It returns ctx's error.
func (r *Reply) Wait(ctx context.Context) ([]byte, error) {
	for {
		select {
		case msg := <-r.ch:
			return msg.Data, nil
		case <-r.back:
			// The reply may have arrived while the connection was down.
			r.back = r.l.Reconnected()
			got, err := r.l.DirectGet(ctx, streams.IO, GetRequest{Last: r.Subject})
			if err == nil && len(got) > 0 {
				return got[0].Data, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Listen calls handle for each message that is stored under a subject from now on, until ctx
// ends. It does not wait for an outage to end: messages stored meanwhile are missed. backlog
// is the number of messages that may wait for handle.
func (l *Conn) Listen(ctx context.Context, subject string, backlog int, handle func(data []byte)) error {
	live := make(chan *nats.Msg, backlog)
	sub, err := l.nc.ChanSubscribe(streams.LivePrefix+subject, live)
	if err != nil {
		return Unavailable("listen", subject, err)
	}
	defer sub.Unsubscribe()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case msg := <-live:
			handle(msg.Data)
		}
	}
}
