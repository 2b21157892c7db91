package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/events/kind"
)

// Config says how to reach the log. The zero value of a field is its default.
type Config struct {
	URL         string                     // of the NATS servers; default nats://127.0.0.1:4222
	InProcess   nats.InProcessConnProvider // an embedded server, instead of URL
	Token       string                     // that the servers want to see; empty: none
	Name        string                     // of the service, as operators of NATS see it
	Replicas    int                        // of each stream made; default 1
	Shards      int                        // of the output, when the streams are first made; default 1
	Retention   time.Duration              // of output and the catalogue; default 24 h
	MaxOutput   int64                      // bytes of output kept at most, when its streams are made; less where there is no room; default 64 GiB
	MaxContexts int64                      // bytes of the files that builds copy, when their store is made; less where there is no room; default 16 GiB
	MaxStore    int64                      // bytes of templates and snapshots kept at most, when their store is made; less where there is no room; default 64 GiB
	Log         *slog.Logger
}

// DefaultRetention is how long output can be read.
const DefaultRetention = 24 * time.Hour

// DefaultMaxContexts is how much of builds' files is kept: more is refused.
const DefaultMaxContexts = 16 << 30

// DefaultMaxOutput is how much output is kept: past it, the oldest goes.
const DefaultMaxOutput = 64 << 30

// Retention is how long output can be read.
func (l *Log) Retention() time.Duration { return l.retention }

// Log is a connection to the record. Its methods may be called concurrently.
type Log struct {
	nc          *nats.Conn
	links       links
	monitor     monitor
	js          jetstream.JetStream
	log         *slog.Logger
	id          string // of this connection, a token for its reply subjects
	shards      int
	replicas    int // of what is made later
	maxContexts int64
	maxStore    int64
	bounded     atomic.Bool // the store of parts has its bound
	retention   time.Duration
	tunnels     tunnelTimes
	memory      []jetstream.StreamConfig // what a server that was alone forgets; none until it is known

	gets    inbox // answers to direct gets
	replies inbox // answers to commands

	mu    sync.Mutex
	tails map[string]*tail // by subject
	back  chan struct{}    // closed, and made anew, after each reconnect

	// The life of the connection as it is: what is on its way ends with it.
	//nolint:containedctx // it is handed to no one who may keep it
	unbroken context.Context
	broke    context.CancelFunc
}

// Open connects and makes the streams that are missing. It waits for NATS and
// for its streams until ctx ends.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	setDefaults(&cfg)
	l := &Log{
		log:         cfg.Log,
		id:          strings.ToLower(nuid.Next()),
		retention:   cfg.Retention,
		tunnels:     tunnelTimes{hello: tunnelHello, ping: tunnelPing},
		replicas:    cfg.Replicas,
		maxContexts: cfg.MaxContexts,
		maxStore:    cfg.MaxStore,
		tails:       make(map[string]*tail),
		back:        make(chan struct{}),
	}
	l.unbroken, l.broke = context.WithCancel(context.Background())
	if err := l.connect(cfg); err != nil {
		return nil, err
	}
	if err := l.prepare(ctx, cfg); err != nil {
		l.nc.Close()
		return nil, err
	}
	return l, nil
}

func setDefaults(cfg *Config) {
	if cfg.URL == "" {
		cfg.URL = nats.DefaultURL
	}
	if cfg.Name == "" {
		cfg.Name = "millrace"
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	if cfg.Retention == 0 {
		cfg.Retention = DefaultRetention
	}
	if cfg.MaxStore <= 0 {
		cfg.MaxStore = DefaultMaxStore
	}
	if cfg.MaxOutput == 0 {
		cfg.MaxOutput = DefaultMaxOutput
	}
	if cfg.MaxContexts == 0 {
		cfg.MaxContexts = DefaultMaxContexts
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

func (l *Log) connect(cfg Config) error {
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.FlusherTimeout(attempt), // a server that does not read would hold up all requests, and Close
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // what cannot be sent fails at once, and its sender tries again in order
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

// prepare waits for the servers, makes what is missing, and opens the inboxes.
func (l *Log) prepare(ctx context.Context, cfg Config) error {
	if err := l.ensureStreams(ctx, cfg); err != nil {
		return err
	}
	l.mu.Lock()
	l.memory = memoryStreams(cfg)
	l.mu.Unlock()
	if err := l.gets.open(l.nc, "_INBOX.get."+l.id); err != nil {
		return err
	}
	return l.replies.open(l.nc, livePrefix+replyPrefix+l.id)
}

// Close ends the connection; Readers and Views end with errors.
func (l *Log) Close() { l.nc.Close() }

// Healthy reports whether the log can be reached right now, and, where
// [Log.MonitorStreams] runs, whether each stream can be written: an error of
// kind.Unavailable says why not.
func (l *Log) Healthy(ctx context.Context) error {
	if !l.nc.IsConnected() {
		return kind.New(kind.Unavailable, "reach nats", "", "not connected to NATS")
	}
	if err := l.blocked(); err != nil {
		return err
	}
	_, err := l.lastSeq(ctx, streamSandboxes)
	return err
}

// disconnected ends what is on its way: its answer never comes.
func (l *Log) disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broke()
	l.unbroken, l.broke = context.WithCancel(context.Background())
}

// attempt bounds one try of a request: by its own time, by ctx, and by the life
// of the connection.
func (l *Log) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.attemptFor(ctx, attempt)
}

func (l *Log) attemptFor(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	unbroken := l.unbroken
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(unbroken, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// reconnected tells every feed that it may have missed something.
func (l *Log) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.back)
	l.back = make(chan struct{})
	for _, sc := range l.memory {
		go l.restore(l.unbroken, sc)
	}
}

// restore makes a stream that lives in memory anew: a server that is alone comes
// back without it.
func (l *Log) restore(ctx context.Context, sc jetstream.StreamConfig) {
	if _, err := l.ensureFitting(ctx, sc, roomKnown); err != nil && ctx.Err() == nil {
		l.log.Warn("a stream could not be made anew", "err", err)
	}
}

// onReconnect gives a channel that is closed at the next reconnect.
func (l *Log) onReconnect() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.back
}

// Reconnected returns a channel that is closed at the next reconnect to the servers.
// Servers that were restarted may have lost what a disk damaged.
func (l *Log) Reconnected() <-chan struct{} { return l.onReconnect() }

// asyncError hears of what nobody waits for. A slow subscription is no error
// here: its feed sees the hole and reads it from the store.
func (l *Log) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) || errors.Is(err, net.ErrClosed) { // links closed it, and said why
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	l.log.Warn("nats", "subject", subject, "err", err)
}

// pause waits between two tries through an outage, longer each time but never
// past a reconnect, and reports whether ctx still runs. It counts the tries.
func (l *Log) pause(ctx context.Context, try *int) bool {
	t := time.NewTimer(pauseOf(*try))
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

func pauseOf(try int) time.Duration {
	return min(time.Millisecond<<min(try, 9), 500*time.Millisecond)
}

// pause waits for others to come as far, longer each time, and reports whether
// ctx still runs.
func pause(ctx context.Context, try int) bool {
	t := time.NewTimer(pauseOf(try))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// unavailable wraps a failure to reach the log. Clients read one sentence; the cause, in
// the words of NATS, is for logs only. A nil err stays nil.
func unavailable(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &kind.Error{Op: op, ID: id, Kind: kind.Unavailable, Msg: "the log cannot be reached: try again", Err: err}
}
