package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Config configures the connection to the log. The zero value of a field selects its
// default.
type Config struct {
	URL         string                     // URL of the NATS servers; default nats://127.0.0.1:4222
	InProcess   nats.InProcessConnProvider // an embedded server, instead of URL
	Token       string                     // token for authentication at the servers; empty: none
	Name        string                     // connection name of the service, shown by NATS monitoring
	Replicas    int                        // number of replicas of each new stream; default 1
	Shards      int                        // number of output streams, when they are first created; default 1
	Retention   time.Duration              // retention of output and the catalogue; default 24 h
	MaxOutput   int64                      // maximum bytes of output, set when its streams are created; less if the disk is too small; default 64 GiB
	MaxContexts int64                      // maximum bytes of files copied by builds, set when their store is created; less if the disk is too small; default 16 GiB
	MaxStore    int64                      // maximum bytes of templates and snapshots, set when their store is created; less if the disk is too small; default 64 GiB
	Log         *slog.Logger
}

// DefaultRetention is the default of Config.Retention.
const DefaultRetention = 24 * time.Hour

// DefaultMaxContexts is the default of Config.MaxContexts. Uploads beyond it are rejected.
const DefaultMaxContexts = 16 << 30

// DefaultMaxOutput is the default of Config.MaxOutput. Beyond it, the oldest output is
// dropped.
const DefaultMaxOutput = 64 << 30

// Log is a connection to the log. Its methods may be called concurrently.
//
// It consists of parts, each with its state and its methods; see "Parts" in the package's
// documentation. What Log itself declares reads and writes documents and the records of
// sandboxes and builds.
type Log struct {
	*conn
	*records
	*blobs
	*commands
	*tunneling
}

// Open connects and creates the streams that are missing. It waits for NATS and for its
// streams until ctx ends.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	setDefaults(&cfg)
	c := newConn(cfg.Log)
	l := &Log{
		conn:      c,
		records:   &records{conn: c, retention: cfg.Retention, tails: make(map[string]*liveTail)},
		blobs:     &blobs{conn: c, replicas: cfg.Replicas, maxContexts: cfg.MaxContexts, maxStore: cfg.MaxStore},
		commands:  &commands{c},
		tunneling: &tunneling{c, tunnelTimes{hello: tunnelHello, ping: tunnelPing}},
	}
	if err := c.connect(cfg); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, cfg); err != nil {
		c.nc.Close()
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
