package core

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/events/tunnel"
	"github.com/millrace/millrace/services/gateway/internal/latency"
)

// Config configures a Core. Log, View and Secret are required; the zero value of
// another field is its default.
type Config struct {
	Log       *events.Log
	View      *catalog.View
	Secret    []byte     // cluster secret, from which sandboxes' tokens are derived
	Sealer    *seal.Ring // seals values that records must not show; required for secrets and for networks with transforms
	Slog      *slog.Logger
	Latencies latency.Observers // default none

	Recording sandbox.Recording // least strict settings of new sandboxes; default full, without patterns

	Tracing tracing.Sampler // of the spans that the reaper exports; default none

	SharedTenant string // tenant whose public templates all tenants find by name; empty: none

	QueueTimeout   time.Duration // maximum wait for a host with free capacity; default 25 s
	CreateTimeout  time.Duration // maximum time from there until the sandbox runs; default 30 s
	DestroyTimeout time.Duration // maximum time for a sandbox to end; default 30 s
	StartTimeout   time.Duration // maximum time for a host to claim a start; default 15 s
	CallTimeout    time.Duration // maximum time for a host to answer; default 10 s
	InputTimeout   time.Duration // maximum time for a process to read 256 KiB of input; default 1 min
}

// DefaultQueueTimeout is the default of Config.QueueTimeout. Together with the time
// to create a sandbox it stays below the minute that E2B's SDKs wait for an answer.
const DefaultQueueTimeout = 25 * time.Second

// Core is what the parts share. It is safe for concurrent use.
type Core struct {
	Config
	Tunnels *tunnel.Dialer // byte streams to hosts
}

// New returns a Core. It does no I/O. Close releases its streams.
func New(cfg Config) *Core {
	cfg.QueueTimeout = cmp.Or(cfg.QueueTimeout, DefaultQueueTimeout)
	cfg.CreateTimeout = cmp.Or(cfg.CreateTimeout, 30*time.Second)
	cfg.DestroyTimeout = cmp.Or(cfg.DestroyTimeout, 30*time.Second)
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, 15*time.Second)
	cfg.CallTimeout = cmp.Or(cfg.CallTimeout, 10*time.Second)
	cfg.InputTimeout = cmp.Or(cfg.InputTimeout, time.Minute)
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	return &Core{Config: cfg, Tunnels: cfg.Log.Tunnels()}
}

// Close ends the streams to sandboxes' ports.
func (c *Core) Close() { c.Tunnels.Close() }

// Sync waits until the view contains everything stored before the call. It returns
// Unavailable if the log cannot be reached.
func (c *Core) Sync(ctx context.Context) error { return c.sync(ctx, c.View.Sync) }

// SyncProcesses is Sync for the sandboxes and processes of the view alone.
func (c *Core) SyncProcesses(ctx context.Context) error {
	return c.sync(ctx, func(ctx context.Context) error { return catalog.SyncProcesses(ctx, c.View) })
}

func (c *Core) sync(ctx context.Context, of func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	if err := of(ctx); err != nil {
		return &kind.Error{Op: "sync", Kind: kind.Unavailable, Msg: "the log cannot be reached: try again", Err: err}
	}
	return nil
}

// HostAlive reports whether a host's lease is valid.
func (c *Core) HostAlive(name string) bool {
	h, ok := c.View.Host(name)
	return ok && h.Alive(time.Now())
}

// RequireHost returns Unavailable at once if the host's lease has ended.
func (c *Core) RequireHost(st *sandbox.State) error {
	if c.HostAlive(st.Host) {
		return nil
	}
	return kind.New(kind.Unavailable, "reach host", st.Host, "the sandbox's host does not answer, try again")
}

// DeriveKey derives a key from a text and the cluster secret. All gateways derive the
// same key; without the secret it cannot be computed.
func (c *Core) DeriveKey(text string) string {
	mac := hmac.New(sha256.New, c.Secret)
	mac.Write([]byte("key"))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// Ready returns Unavailable unless the log can be reached and the view has caught up with
// it.
func (c *Core) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := c.Log.Healthy(ctx); err != nil {
		return LogError("ready", "", err)
	}
	return c.Sync(ctx)
}
