package store

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

// Config configures a connection. Replicas, Shards, Retention, MaxOutput and Log must be
// set.
type Config struct {
	URL       string        // URL of the NATS servers; default nats://127.0.0.1:4222
	InProcess Server        // an embedded server, instead of URL
	Token     string        // token for authentication at the servers; empty: none
	Name      string        // connection name, shown by NATS monitoring
	Replicas  int           // number of replicas of each new stream
	Shards    int           // number of output streams, when they are first created
	Retention time.Duration // retention of output and the catalog
	Ends      *Ends         // shared by all connections of a process that is the only one connected to the servers; nil: others may be
	MaxOutput int64         // maximum bytes of output, set when its streams are created; less if the disk is too small
	Observers observe.Observers
	Log       *slog.Logger
}

// Server is a NATS server in this process.
type Server interface {
	InProcessConn() (net.Conn, error)
}

// Conn is a connection to the servers: it reads and appends, and opens feeds. Its methods
// may be called concurrently.
type Conn struct {
	*session
	Monitor *Monitor
	Ends    *Ends // nil: other processes may be connected
	To      observe.Observers

	id      string // of this connection; a token in its reply subjects
	shards  int
	gets    inbox // responses to direct gets
	replies inbox // see NewReply
	batches inbox // responses to batches

	combiners combiners
}

// Open connects and creates the streams that are missing. It waits for NATS and for its
// streams until ctx ends.
func Open(ctx context.Context, cfg Config) (*Conn, error) {
	cfg.URL = cmp.Or(cfg.URL, nats.DefaultURL)
	s := newSession(cfg.Log)
	c := &Conn{session: s, Monitor: &Monitor{session: s}, Ends: cfg.Ends, To: cfg.Observers, id: strings.ToLower(ulid.Make().String())}
	if err := s.connect(&cfg); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, &cfg); err != nil {
		s.nc.Close()
		return nil, err
	}
	return c, nil
}

// prepare waits for the servers, creates missing streams, and opens the inboxes.
func (l *Conn) prepare(ctx context.Context, cfg *Config) error {
	shards, err := l.maker().ensureAll(ctx, cfg)
	if err != nil {
		return err
	}
	l.shards = shards
	l.Monitor.names = streams.Names(shards)
	memory := inMemory(cfg)
	l.afterReconnect(func(ctx context.Context) {
		l.Ends.forget()
		for _, sc := range memory {
			go l.restore(ctx, sc)
		}
	})
	if err := l.gets.open(l.nc, "_INBOX.get."+l.id); err != nil {
		return err
	}
	if err := l.batches.open(l.nc, nats.NewInbox()); err != nil {
		return err
	}
	return l.replies.open(l.nc, streams.LivePrefix+streams.ReplyPrefix+l.id)
}

func (l *Conn) maker() maker { return maker{js: l.js, log: l.log, attempt: l.Attempt} }

// restore creates a memory stream again: a lone server loses it on restart.
func (l *Conn) restore(ctx context.Context, sc jetstream.StreamConfig) {
	if _, err := l.maker().ensureShrinking(ctx, sc, capacityKnown); err != nil && ctx.Err() == nil {
		l.log.Warn("restore stream failed", "err", err)
	}
}

// ID returns a token that is unique to the connection.
func (l *Conn) ID() string { return l.id }

// Shards returns the number of output streams.
func (l *Conn) Shards() int { return l.shards }

// Log returns the logger of the connection.
func (l *Conn) Log() *slog.Logger { return l.log }

// Healthy reports whether the servers can be reached and, if the Monitor runs, whether each
// stream can be written. If not, it returns an error of kind.Unavailable with the reason.
func (l *Conn) Healthy(ctx context.Context) error {
	if !l.Connected() {
		return kind.New(kind.Unavailable, "reach nats", "", "not connected to NATS")
	}
	if err := l.Monitor.blocked(); err != nil {
		return err
	}
	_, err := l.LastSeq(ctx, streams.Sandboxes)
	return err
}

// Unavailable wraps a failure to reach the log. Clients read one sentence; the NATS error
// is the cause, for logs only. A nil err stays nil.
func Unavailable(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &kind.Error{Op: op, ID: id, Kind: kind.Unavailable, Msg: "the log cannot be reached: try again", Err: err}
}
