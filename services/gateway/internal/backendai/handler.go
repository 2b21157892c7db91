package backendai

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/files"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/backendai/signature"
	"github.com/millrace/millrace/services/gateway/internal/backendai/sse"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/rate"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// Pairs finds key pairs.
type Pairs interface {
	// Pair returns the pair of an access key, and false if it does not exist or was revoked.
	Pair(accessKey string) (signature.Pair, bool)
}

// Sandboxes finds and ends sandboxes.
type Sandboxes interface {
	Sync(ctx context.Context) error
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	FindSandbox(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	SetDeadline(ctx context.Context, p core.Principal, id sandbox.ID, deadline time.Time, extendOnly bool) (sandbox.State, error)
	OwnEnv(st *sandbox.State) (map[string]string, error)
	DestroySandbox(ctx context.Context, p core.Principal, id sandbox.ID) error
	EndSandbox(ctx context.Context, p core.Principal, id sandbox.ID, cause string) error
	RecentUsage(ctx context.Context, p core.Principal, id sandbox.ID) (lifecycle.Usage, error)
}

// Processes starts, finds and reads processes.
type Processes interface {
	Processes(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	ActiveProcesses(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	record.Records
}

// Controls act on running processes.
type Controls interface {
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
	Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error
	SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error
}

// Cursors store how far clients have read.
type Cursors interface {
	WatchCursor(ctx context.Context, id process.ID) (catalog.WatchCursor, error)
	PutWatchCursor(ctx context.Context, id process.ID, at catalog.WatchCursor) (uint64, error)
}

// Runs makes the processes of runs. It is implemented by [interpreter.Runs].
type Runs interface {
	Spec(ctx context.Context, p core.Principal, sbx sandbox.ID, language string, run interpreter.Run) (process.Spec, error)
}

// Operations are the operations of the gateway that the surface uses, implemented by
// record.Gateway.
type Operations interface {
	Sandboxes
	Processes
	Controls
	Cursors
	DeriveKey(text string) string
}

// Creator creates the sandboxes of sessions.
type Creator interface {
	// Session returns the request for a sandbox of a template. It returns NotFound if the
	// template does not exist, and Invalid for limits out of range.
	Session(ctx context.Context, p core.Principal, template string, w *session.Wanted, idle time.Duration) (sandbox.Requested, error)
	// Ensure creates a sandbox with an id that only requests for the session have, or waits for it.
	Ensure(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error)
	// Enqueue is Ensure without waiting until the sandbox runs.
	Enqueue(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error)
	// GiveName stores a record with the given id that gives the name in metadata to a sandbox. It
	// returns Conflict if the record exists.
	GiveName(ctx context.Context, p core.Principal, id, to sandbox.ID, metadata map[string]string) error
	// RunTemplateCommand runs the start command of a sandbox's template, once.
	RunTemplateCommand(ctx context.Context, p core.Principal, st *sandbox.State)
}

// Config configures the surface. A zero field after Sockets means its default.
type Config struct {
	Operations Operations
	Pairs      Pairs
	Creator    Creator
	Runs       Runs
	Ports      Ports
	Log        sse.Log
	Counts     *rate.Counts                                                            // of requests, by access key
	All        func(keep func(*sandbox.State) bool) []sandbox.State                    // sandboxes of all tenants
	Active     func(id sandbox.ID, keep func(*process.Summary) bool) []process.Summary // of a sandbox, as far as they are known
	Files      func(p core.Principal, id sandbox.ID) files.Store
	Streams    *stream.Streams
	Sockets    *websocket.Server

	RateLimit  int           // requests per access key in 15 minutes; default 30,000
	MaxTimeout time.Duration // maximum idle time of a session; default 24 h
	Version    string        // version of this program
	Slog       *slog.Logger
}

const (
	defaultRate = 30_000
	defaultIdle = time.Hour
	defaultMax  = 24 * time.Hour
)

// Handler implements the surface. It is safe for concurrent use.
type Handler struct {
	cfg      Config
	endpoint *websocket.Endpoint
	tunnels  *websocket.Endpoint
	hub      *sse.Hub
	keeper   *supervisor
	turns    *turns
}

// New returns the surface.
func New(cfg Config) *Handler {
	cfg.RateLimit = cmp.Or(max(cfg.RateLimit, 0), defaultRate)
	cfg.MaxTimeout = cmp.Or(max(cfg.MaxTimeout, 0), defaultMax)
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	h := &Handler{
		cfg: cfg, hub: sse.NewHub(namedLog{cfg.Log, cfg.All}), turns: newTurns(),
		// Browsers do not sign requests by themselves.
		endpoint: cfg.Sockets.Endpoint(websocket.Options{AnyOrigin: true}),
		tunnels:  cfg.Sockets.Endpoint(websocket.Options{AnyOrigin: true, WriteTimeout: tunnelWriteTimeout}),
	}
	h.keeper = newSupervisor(h)
	return h
}

// Run follows the events of sessions and does what no client waits for, until ctx ends.
func (h *Handler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.hub.Run(ctx) })
	g.Go(func() error { return h.keeper.run(ctx) })
	return g.Wait()
}

// prefixes are the versions that paths may begin with.
var prefixes = [...]string{"", "/v4", "/v5", "/v6", "/v7", "/v8", "/v9"}

// Register adds the routes. Guard must run before them.
func (h *Handler) Register(r fiber.Router) {
	for _, v := range prefixes {
		if v != "" {
			r.Get(v, h.about)
		}
		for _, kind := range [...]string{"/session", "/kernel"} {
			h.registerSessions(r, v+kind)
			r.Get(v+"/stream"+kind+"/:id/execute", h.streamed)
			r.Get(v+"/stream"+kind+"/:id/pty", h.pty)
			services{h}.register(r, v+"/stream"+kind+"/:id", v+kind+"/:id")
		}
		listeners{h}.register(r, v)
	}
}

// registerSessions adds the routes of sessions under a prefix.
func (h *Handler) registerSessions(r fiber.Router, at string) {
	for _, path := range [...]string{"", "/create", "/_/create"} {
		r.Post(at+path, h.create)
	}
	one := at + "/:id"
	r.Get(one, h.info)
	r.Delete(one, h.destroy)
	r.Patch(one, h.restart)
	r.Post(one, h.execute)
	r.Post(one+"/complete", completer{h}.complete)
	r.Post(one+"/interrupt", h.interrupt)
	r.Get(one+"/logs", outputs{h}.logs)
	transfers{h}.register(r, one)
	r.Post(one+"/rename", renamer{h}.rename)
}
