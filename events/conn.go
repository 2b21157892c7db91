package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/internal/waiting"
)

// conn is a connection to the servers: requests, appends and feeds, which retry through
// outages. All other parts of a Log use it.
type conn struct {
	nc            *nats.Conn
	links         links
	monitor       monitor
	js            jetstream.JetStream
	log           *slog.Logger
	id            string // of this connection; a token in its reply subjects
	shards        int
	memoryConfigs []jetstream.StreamConfig // streams that a lone server loses on restart; nil until configured

	gets    inbox // responses to direct gets
	replies inbox // responses to commands

	mu        sync.Mutex
	reconnect chan struct{} // closed and replaced after each reconnect

	// Ends when the connection breaks, and with it all requests in flight.
	//nolint:containedctx // it only bounds single attempts
	connCtx    context.Context
	cancelConn context.CancelFunc
}

// newConn returns a connection that is not connected yet.
func newConn(log *slog.Logger) *conn {
	c := &conn{log: log, id: strings.ToLower(ulid.Make().String()), reconnect: make(chan struct{})}
	c.connCtx, c.cancelConn = context.WithCancel(context.Background())
	return c
}

func (l *conn) connect(cfg Config) error {
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.FlusherTimeout(attempt), // a server that does not read would block all requests, and Close
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // a publish without a connection fails at once, and its sender retries in order
		nats.Timeout(dialTimeout),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { l.disconnected() }),
		nats.ReconnectHandler(func(*nats.Conn) { l.reconnected() }),
		nats.ErrorHandler(l.asyncError),
	}
	if cfg.Token != "" {
		opts = append(opts, nats.Token(cfg.Token))
	}
	if cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(cfg.InProcess), nats.PingInterval(inProcessPing), nats.MaxPingsOutstanding(2))
	} else {
		opts = append(opts, nats.SetCustomDialer(&l.links), nats.PingInterval(linkPing), nats.MaxPingsOutstanding(linkPings))
	}
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		return fmt.Errorf("connect to nats: %w", err)
	}
	l.nc = nc
	l.js, err = jetstream.New(nc)
	return err
}

// prepare waits for the servers, creates missing streams, and opens the inboxes.
func (l *conn) prepare(ctx context.Context, cfg Config) error {
	settings := streams.Config{Replicas: cfg.Replicas, Shards: cfg.Shards, Retention: cfg.Retention, MaxOutput: cfg.MaxOutput}
	shards, err := l.streamMaker().Ensure(ctx, settings)
	if err != nil {
		return err
	}
	l.shards = shards
	l.mu.Lock()
	l.memoryConfigs = streams.InMemory(settings)
	l.mu.Unlock()
	if err := l.gets.open(l.nc, "_INBOX.get."+l.id); err != nil {
		return err
	}
	return l.replies.open(l.nc, streams.LivePrefix+streams.ReplyPrefix+l.id)
}

func (l *conn) streamMaker() streams.Maker {
	return streams.Maker{JS: l.js, Log: l.log, Attempt: l.attemptFor}
}

// Close closes the connection. Readers and Views end with errors.
func (l *conn) Close() { l.nc.Close() }

// Healthy reports whether the log can be reached and, if [Log.MonitorStreams] runs, whether
// each stream can be written. If not, it returns an error of kind.Unavailable with the
// reason.
func (l *conn) Healthy(ctx context.Context) error {
	if !l.nc.IsConnected() {
		return kind.New(kind.Unavailable, "reach nats", "", "not connected to NATS")
	}
	if err := l.blocked(); err != nil {
		return err
	}
	_, err := l.lastSeq(ctx, streams.Sandboxes)
	return err
}

// disconnected cancels requests in flight: their responses never arrive.
func (l *conn) disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelConn()
	l.connCtx, l.cancelConn = context.WithCancel(context.Background())
}

// attempt bounds one attempt of a request by its own timeout, by ctx, and by the lifetime
// of the connection.
func (l *conn) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.attemptFor(ctx, attempt)
}

func (l *conn) attemptFor(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	unbroken := l.connCtx
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(unbroken, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// reconnected notifies every feed that it may have missed messages.
func (l *conn) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.reconnect)
	l.reconnect = make(chan struct{})
	for _, sc := range l.memoryConfigs {
		go l.restore(l.connCtx, sc)
	}
}

// restore creates a memory stream again: a lone server loses it on restart.
func (l *conn) restore(ctx context.Context, sc jetstream.StreamConfig) {
	if err := l.streamMaker().Restore(ctx, sc); err != nil && ctx.Err() == nil {
		l.log.Warn("restore stream failed", "err", err)
	}
}

// onReconnect returns a channel that is closed at the next reconnect.
func (l *conn) onReconnect() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reconnect
}

// Reconnected returns a channel that is closed at the next reconnect to the servers.
// Restarted servers may have lost messages to disk damage.
func (l *conn) Reconnected() <-chan struct{} { return l.onReconnect() }

// asyncError logs errors that no caller waits for. A slow subscription is not an error
// here: its feed detects the hole and reads it from the store.
func (l *conn) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) || errors.Is(err, net.ErrClosed) { // links closed it and logged the reason
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	l.log.Warn("nats reported an error", "subject", subject, "err", err)
}

// backoff waits between two attempts during an outage, with increasing backoff but never past
// a reconnect. It counts the attempts and reports whether ctx is still valid.
func (l *conn) backoff(ctx context.Context, try *int) bool {
	t := time.NewTimer(backoffDelay(*try))
	defer t.Stop()
	*try++
	select {
	case <-ctx.Done():
		return false
	case <-l.onReconnect():
		*try = 0
	case <-t.C:
	}
	return true
}

func backoffDelay(try int) time.Duration {
	return waiting.Delay(try, time.Millisecond, 500*time.Millisecond)
}

// backoff waits for other replicas to catch up, with increasing backoff, and reports whether
// ctx is still valid.
func backoff(ctx context.Context, try int) bool { return waiting.Sleep(ctx, backoffDelay(try)) }

// unavailable wraps a failure to reach the log. Clients read one sentence; the NATS error
// is the cause, for logs only. A nil err stays nil.
func unavailable(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &kind.Error{Op: op, ID: id, Kind: kind.Unavailable, Msg: "the log cannot be reached: try again", Err: err}
}
