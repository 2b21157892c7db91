package core

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Config says what a Core works on. Log, View and Secret are required; the zero
// value of another field is its default.
type Config struct {
	Log    *events.Log
	View   *events.View
	Secret []byte          // the cluster's, from which sandboxes' tokens are made
	Sealer *sandbox.Sealer // the cluster's, for what records must not show; required where networks have transforms, and for secrets
	Slog   *slog.Logger

	SharedTenant string // whose public templates all tenants find by their names; empty: nobody's

	QueueTimeout   time.Duration // for which a sandbox waits for a host with free capacity; default 25 s
	CreateTimeout  time.Duration // within which a sandbox must run once that wait is over; default 30 s
	DestroyTimeout time.Duration // within which a sandbox must be gone; default 30 s
	StartTimeout   time.Duration // within which a host must claim a start; default 15 s
	CallTimeout    time.Duration // within which a host must answer; default 10 s
	InputTimeout   time.Duration // within which a process must read 256 KiB of input; default 1 min
}

// DefaultQueueTimeout is Config.QueueTimeout by default. With the time for making the
// sandbox it is less than the minute for which E2B's SDKs wait for an answer.
const DefaultQueueTimeout = 25 * time.Second

// Core does what the surfaces ask for. Its methods may be called concurrently.
type Core struct {
	log     *events.Log
	view    *events.View
	secret  []byte
	slog    *slog.Logger
	cfg     Config
	tunnels *events.Tunnels
	ring    *identity.Ring

	mu        sync.Mutex
	unclaimed []pending // oldest first: all wait equally long
	pausing   map[sandbox.ID]int
}

// Principal is who asks.
type Principal struct {
	Tenant  string           // never empty
	Sandbox sandbox.ID       // not empty: the bearer of one sandbox's token, good for that one only
	Volume  sandbox.VolumeID // not empty: the bearer of one volume's token, likewise
}

// may reports whether p may know of st.
func (p Principal) may(st *sandbox.State) bool {
	return p.Tenant != "" && p.Volume == "" && p.Tenant == st.Tenant && (p.Sandbox == "" || p.Sandbox == st.ID)
}

// New gives a Core. It does no I/O. Close ends what it holds.
func New(cfg Config) *Core {
	orElse(&cfg.QueueTimeout, DefaultQueueTimeout)
	orElse(&cfg.CreateTimeout, 30*time.Second)
	orElse(&cfg.DestroyTimeout, 30*time.Second)
	orElse(&cfg.StartTimeout, 15*time.Second)
	orElse(&cfg.CallTimeout, 10*time.Second)
	orElse(&cfg.InputTimeout, time.Minute)
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	return &Core{log: cfg.Log, view: cfg.View, secret: cfg.Secret, slog: cfg.Slog, cfg: cfg, tunnels: cfg.Log.Tunnels(), ring: identity.NewRing(cfg.Sealer), pausing: make(map[sandbox.ID]int)}
}

// Close ends the streams to sandboxes' ports.
func (c *Core) Close() { c.tunnels.Close() }

func orElse(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

// Sync waits until the view has everything that was stored before the call. A
// log that cannot be reached is Unavailable.
func (c *Core) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	if err := c.view.Sync(ctx); err != nil {
		return &kind.Error{Op: "sync", Kind: kind.Unavailable, Msg: "the log cannot be reached: try again", Err: err}
	}
	return nil
}

// HostAlive reports whether a host's lease holds.
func (c *Core) HostAlive(name string) bool {
	h, ok := c.view.Host(name)
	return ok && h.Alive(time.Now())
}

// alive says Unavailable at once if the host's lease has ended.
func (c *Core) alive(st *sandbox.State) error {
	if c.HostAlive(st.Host) {
		return nil
	}
	return kind.New(kind.Unavailable, "reach host", st.Host, "the sandbox's host does not answer, try again")
}
