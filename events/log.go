package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/blob"
	"github.com/millrace/millrace/events/bundlestore"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/directory"
	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/keyframe"
	"github.com/millrace/millrace/events/keystore"
	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/events/lives"
	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/persistence"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/reseal"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/share"
	"github.com/millrace/millrace/events/tally"
	"github.com/millrace/millrace/events/trail"
	"github.com/millrace/millrace/events/tunnel"
	"github.com/millrace/millrace/events/workspace"
)

// Config configures the connection to the log. The zero value of a field selects its
// default.
type Config struct {
	URL           string        // URL of the NATS servers; default nats://127.0.0.1:4222
	InProcess     store.Server  // an embedded server, instead of URL
	Ends          *Ends         // see NewEnds; nil: other processes may be connected to the servers
	Token         string        // token for authentication at the servers; empty: none
	Name          string        // connection name of the service, shown by NATS monitoring
	Replicas      int           // number of replicas of each new stream; default 1
	Shards        int           // number of output streams, when they are first created; default 1
	Retention     time.Duration // retention of output and the catalog; default 24 h
	MaxOutput     int64         // maximum bytes of output, set when its streams are created; less if the disk is too small; default 64 GiB
	MaxContexts   int64         // maximum bytes of files copied by builds, set when their store is created; less if the disk is too small; default 16 GiB
	MaxStore      int64         // maximum bytes of templates and snapshots, set when their store is created; less if the disk is too small; default 64 GiB
	MaxWorkspaces int64         // maximum bytes of files of workspaces, set when their store is created; less if the disk is too small; default 16 GiB
	Observers     Observers     // of what happens on the connection; default none
	MasterKey     seal.Source   // master key, outside of the store; nil: the secrets of the log cannot be used
	Log           *slog.Logger
}

// DefaultRetention is the default of Config.Retention.
const DefaultRetention = 24 * time.Hour

// DefaultMaxContexts is the default of Config.MaxContexts. Uploads beyond it are rejected.
const DefaultMaxContexts = 16 << 30

// DefaultMaxStore is the default of Config.MaxStore.
const DefaultMaxStore = 64 << 30

// DefaultMaxWorkspaces is the default of Config.MaxWorkspaces. Uploads beyond it are rejected.
const DefaultMaxWorkspaces = 16 << 30

// DefaultMaxOutput is the default of Config.MaxOutput. Beyond it, the oldest output is
// dropped.
const DefaultMaxOutput = 64 << 30

// Observers receive what happens on a connection, such as the time of appends.
type Observers = observe.Observers

// Ends are the ends of streams as far as one process knows them.
type Ends = store.Ends

// NewEnds returns Config.Ends for all connections of a process that is the only one connected to the
// servers, which then know without a request how far a View must be.
func NewEnds() *Ends { return store.NewEnds() }

// Log is a connection to the log. Its methods may be called concurrently.
//
// It consists of parts, each with its state and its methods; see "Parts" in the package's
// documentation.
type Log struct {
	conn *store.Conn
	*record.Records
	*catalog.Documents
	*blob.Store
	*command.Queue
	*tunnel.Transport
	*keystore.Keys
	*trail.Trail
}

// Open connects and creates the streams that are missing. It waits for NATS and for its
// streams until ctx ends.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	setDefaults(&cfg)
	c, err := store.Open(ctx, store.Config{
		URL: cfg.URL, InProcess: cfg.InProcess, Ends: cfg.Ends, Token: cfg.Token, Name: cfg.Name, Log: cfg.Log,
		Replicas: cfg.Replicas, Shards: cfg.Shards, Retention: cfg.Retention, MaxOutput: cfg.MaxOutput, Observers: cfg.Observers,
	})
	if err != nil {
		return nil, err
	}
	return &Log{
		conn:      c,
		Records:   record.NewRecords(c, cfg.Retention),
		Documents: catalog.NewDocuments(c),
		Store:     blob.New(c, blob.Config{Replicas: cfg.Replicas, MaxContexts: cfg.MaxContexts, MaxStore: cfg.MaxStore, MaxWorkspaces: cfg.MaxWorkspaces}),
		Queue:     command.NewQueue(c),
		Transport: tunnel.NewTransport(c),
		Keys:      keystore.New(c, cfg.MasterKey),
		Trail:     trail.New(c),
	}, nil
}

func setDefaults(cfg *Config) {
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
	if cfg.MaxWorkspaces <= 0 {
		cfg.MaxWorkspaces = DefaultMaxWorkspaces
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

// Attachments returns a store of the sessions of clients, which runs separately.
func (l *Log) Attachments() *attachment.Store { return attachment.NewStore(l.conn) }

// Values returns the sealed values in the log.
func (l *Log) Values() *reseal.Values { return reseal.New(l.conn) }

// Directory returns a store of the accounts of users, which runs separately.
func (l *Log) Directory() *directory.Store { return directory.New(l.conn) }

// Conversations returns a store of the conversations of clients, which runs separately.
func (l *Log) Conversations() *conversation.Store { return conversation.NewStore(l.conn) }

// Bundles returns the secret bundles of tenants.
func (l *Log) Bundles() *bundlestore.Store { return bundlestore.New(l.conn) }

// Meter returns a store of what tenants use, which runs separately.
func (l *Log) Meter() *meter.Store { return meter.NewStore(l.conn) }

// Ledger returns a store of the credits of tenants, which runs separately.
func (l *Log) Ledger() *ledger.Store { return ledger.NewStore(l.conn) }

// Workspaces returns a store of the files of workspaces, which runs separately.
func (l *Log) Workspaces() *workspace.Store { return workspace.NewStore(l.conn, l.WorkspaceBytes()) }

// Persistence returns a store of what was sent to persistence backends, whose view runs separately.
func (l *Log) Persistence() *persistence.Store { return persistence.NewStore(l.conn) }

// Shares returns a store of the links that onlookers read with, whose view runs separately.
func (l *Log) Shares() *share.Store { return share.NewStore(l.conn) }

// Lives returns a feed of the starts and ends of processes, which runs separately.
func (l *Log) Lives() *lives.Feed { return lives.New(l.conn) }

// KeyFrames returns a store of the key frames of a version of an emulator.
func (l *Log) KeyFrames(version uint32) *keyframe.Store {
	return keyframe.NewStore(l.conn, version, l.Retention())
}

// Tally returns the counts of requests that gateways share.
func (l *Log) Tally() *tally.Store { return tally.NewStore(l.conn) }

// OpenView folds the log and returns when it has caught up. The view is kept up to date
// until ctx ends.
func (l *Log) OpenView(ctx context.Context) (*catalog.View, error) {
	return catalog.OpenView(ctx, l.conn, l.Store, l.Retention())
}

// Close closes the connection. Readers and Views end with errors.
func (l *Log) Close() { l.conn.Close() }

// Healthy reports whether the log can be reached and, if [Log.MonitorStreams] runs, whether
// each stream can be written. If not, it returns an error of kind.Unavailable with the
// reason.
func (l *Log) Healthy(ctx context.Context) error { return l.conn.Healthy(ctx) }

// Reconnected returns a channel that is closed at the next reconnect to the servers.
// Restarted servers may have lost messages to disk damage.
func (l *Log) Reconnected() <-chan struct{} { return l.conn.Reconnected() }

// StreamHealth reports whether a stream can be written.
type StreamHealth = store.StreamHealth

// Streams returns the health of every stream at the last check by MonitorStreams, by name.
func (l *Log) Streams() []StreamHealth { return l.conn.Monitor.Streams() }

// MonitorStreams checks until ctx ends whether each stream can be written: its leader
// answers, appends succeed, and no server reports its copy damaged. It logs problems as
// errors and exposes them in [Log.Streams] and [Log.Healthy].
func (l *Log) MonitorStreams(ctx context.Context) error { return l.conn.Monitor.Run(ctx) }

// Prompt returns a context for requests of clients. If the servers report a stream as not
// writable, for example because a disk is full, an append is tried once more and then fails
// with kind.Unavailable and the reason. Without Prompt, an append waits until ctx ends. It
// has an effect only on a Log whose MonitorStreams runs.
func Prompt(ctx context.Context) context.Context { return store.Prompt(ctx) }
