package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Config says how to reach the log. The zero value of a field is its default.
type Config struct {
	URL       string                     // of the NATS servers; default nats://127.0.0.1:4222
	InProcess nats.InProcessConnProvider // an embedded server, instead of URL
	Name      string                     // of the service, as operators of NATS see it
	Replicas  int                        // of each stream made; default 1
	Shards    int                        // of the output, when the streams are first made; default 1
	Retention time.Duration              // of output; default 24 h
	Log       *slog.Logger
}

// Log is a connection to the record. Its methods may be called concurrently.
type Log struct{}

// Open connects and makes the streams that are missing. It waits for NATS and
// for its streams until ctx ends.
func Open(ctx context.Context, cfg Config) (*Log, error) { return nil, errPending }

// Close ends the connection; Readers and Views end with errors.
func (l *Log) Close() {}

// Healthy reports whether the log can be reached right now.
func (l *Log) Healthy(ctx context.Context) error { return errPending }

// AppendSandbox stores facts of a sandbox's record, all or none. rev is the
// stream sequence of the record's last message, 0 for a new record; firstSeq is
// the seq of bodies[0]. It gives the new rev, or an error of kind.Conflict if
// somebody else wrote first.
func (l *Log) AppendSandbox(ctx context.Context, tenant string, id sandbox.ID, rev, firstSeq uint64, bodies ...sandbox.Body) (uint64, error) {
	return 0, errPending
}

// PutSummary stores a process's entry in the catalogue in place of the one with
// stream sequence rev (0: there is none). Conflict as in AppendSandbox.
func (l *Log) PutSummary(ctx context.Context, s *process.Summary, rev uint64) (uint64, error) {
	return 0, errPending
}

// PutLease stores a host's lease in place of the one with stream sequence rev
// (0: there is none). Conflict as in AppendSandbox: another life of the host, or
// the reaper, wrote.
func (l *Log) PutLease(ctx context.Context, lease fleet.Lease, rev uint64) (uint64, error) {
	return 0, errPending
}

// Key is an API key as the log knows it.
type Key struct {
	ID      string
	Tenant  string
	SHA256  [32]byte
	Hint    string // its first characters, for people
	Issued  time.Time
	Revoked bool
}

// IssueKey stores a key; one that is there already is left alone.
func (l *Log) IssueKey(ctx context.Context, k Key) error { return errPending }

// RevokeKey ends a key for ever.
func (l *Log) RevokeKey(ctx context.Context, tenant, id string) error { return errPending }

// Secret gives the cluster's secret of that name: 32 random bytes, made by
// whoever asks first and the same for everybody after.
func (l *Log) Secret(ctx context.Context, name string) ([]byte, error) { return nil, errPending }
