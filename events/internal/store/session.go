package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/waiting"
)

// attempt bounds one attempt to publish or read. A response that was in flight when another
// server crashed never arrives, so each attempt needs a timeout of its own: the caller's
// context may last as long as a process.
const attempt = 2 * time.Second

// session is the connection to the servers. It bounds the attempts of requests and reports
// reconnects.
type session struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	log       *slog.Logger
	links     links
	answers   inbox                 // responses to requests
	sending   sync.RWMutex          // locked while messages are sent that must follow each other
	onConnect func(context.Context) // called after each reconnect, with the session locked; nil: nothing

	mu        sync.Mutex
	reconnect chan struct{} // closed and replaced after each reconnect

	// Ends when the connection breaks, and with it all requests in flight.
	// it only bounds single attempts
	connCtx    context.Context
	cancelConn context.CancelFunc
}

// newSession returns a session that is not connected yet.
func newSession(log *slog.Logger) *session {
	s := &session{log: log, reconnect: make(chan struct{})}
	s.connCtx, s.cancelConn = context.WithCancel(context.Background())
	return s
}

func (l *session) connect(cfg *Config) error {
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
	if err := l.answers.open(nc, nats.NewInbox()); err != nil {
		return err
	}
	l.js, err = jetstream.New(nc)
	return err
}

// Close closes the connection. Feeds end with errors.
func (l *session) Close() { l.nc.Close() }

// Connected reports whether a server is connected.
func (l *session) Connected() bool { return l.nc.IsConnected() }

// Closed reports whether the connection was closed.
func (l *session) Closed() bool { return l.nc.IsClosed() }

// disconnected cancels requests in flight: their responses never arrive.
func (l *session) disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelConn()
	l.connCtx, l.cancelConn = context.WithCancel(context.Background())
}

// attempt is Attempt with the timeout of most requests.
func (l *session) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.Attempt(ctx, attempt)
}

// unbroken returns a context that ends when the connection breaks.
func (l *session) unbroken() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connCtx
}

// Attempt bounds one attempt of a request by a timeout, by ctx, and by the lifetime of the
// connection.
func (l *session) Attempt(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(l.unbroken(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// reconnected notifies every feed that it may have missed messages.
func (l *session) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onConnect != nil {
		l.onConnect(l.connCtx)
	}
	close(l.reconnect)
	l.reconnect = make(chan struct{})
}

// afterReconnect sets what runs after each reconnect, with a context that ends when the
// connection breaks. It must not block.
func (l *session) afterReconnect(do func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onConnect = do
}

// Reconnected returns a channel that is closed at the next reconnect to the servers.
// Restarted servers may have lost messages to disk damage.
func (l *session) Reconnected() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reconnect
}

// asyncError logs errors that no caller waits for. A slow subscription is not an error
// here: its feed detects the hole and reads it from the store.
func (l *session) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) || errors.Is(err, net.ErrClosed) { // links closed it and logged the reason
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	l.log.Warn("nats reported an error", "subject", subject, "err", err)
}

// Backoff waits between two attempts during an outage, with increasing backoff but never past
// a reconnect. It counts the attempts and reports whether ctx is still valid.
func (l *session) Backoff(ctx context.Context, try *int) bool {
	t := time.NewTimer(backoffDelay(*try))
	defer t.Stop()
	*try++
	select {
	case <-ctx.Done():
		return false
	case <-l.Reconnected():
		*try = 0
	case <-t.C:
	}
	return true
}

func backoffDelay(try int) time.Duration {
	return waiting.Delay(try, time.Millisecond, 500*time.Millisecond)
}

// Backoff waits for other replicas to catch up, with increasing backoff, and reports whether
// ctx is still valid.
func Backoff(ctx context.Context, try int) bool { return waiting.Sleep(ctx, backoffDelay(try)) }
