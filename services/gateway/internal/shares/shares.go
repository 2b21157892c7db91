package shares

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/share"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	// maxShares is the maximum number of valid links of a tenant.
	maxShares = 1000
	// syncTimeout limits how long a request waits for the log.
	syncTimeout = 5 * time.Second
	// tick is the interval at which expired links end their open streams.
	tick = 500 * time.Millisecond
	// sweepInterval is the time between two removals of links that have ended.
	sweepInterval = 10 * time.Minute
)

var errEnded = kind.New(kind.Unauthenticated, "read", "", "the link was revoked or has expired")

// Operations are the operations that the links need.
type Operations interface {
	FindSandbox(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	Process(ctx context.Context, p core.Principal, id process.ID) (process.Summary, error)
	Tail(ctx context.Context, p core.Principal, id process.ID) (record.Tail, error)
}

// Shares has the links of all tenants. Its methods may be called concurrently, after Start.
type Shares struct {
	store *share.Store
	ops   Operations
	slog  *slog.Logger

	mu   sync.Mutex
	open map[share.ID]*lifetime // of links that requests have used here
}

// lifetime ends with a link.
type lifetime struct {
	ctx context.Context //nolint:containedctx // streams end with it
	end context.CancelCauseFunc
}

// New returns the links in store.
func New(store *share.Store, ops Operations, log *slog.Logger) *Shares {
	return &Shares{store: store, ops: ops, slog: log, open: make(map[share.ID]*lifetime)}
}

// Start folds the links until viewing ends, and returns when the view is up to date.
func (s *Shares) Start(ctx, viewing context.Context) error {
	if err := s.store.Start(viewing); err != nil {
		return err
	}
	return s.store.Sync(ctx)
}

// Run ends the streams of links that end, and removes old links, until ctx ends.
func (s *Shares) Run(ctx context.Context) error {
	changed, stop := s.store.Changes()
	defer stop()
	expiry := time.NewTicker(tick)
	defer expiry.Stop()
	swept := time.Now()
	for {
		s.endStreams(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-expiry.C:
		}
		if time.Since(swept) < sweepInterval {
			continue
		}
		swept = time.Now()
		if err := s.store.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.slog.Warn("sweep shares failed", "err", err)
		}
	}
}

// endStreams ends the streams of links that have ended.
func (s *Shares) endStreams(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.open {
		x, ok := s.store.Get(id)
		if ok {
			_, ok = x.Ended(now)
			ok = !ok
		}
		if !ok {
			l.end(errEnded)
			delete(s.open, id)
		}
	}
}

// lifetimeOf returns a context that ends with a link.
func (s *Shares) lifetimeOf(id share.ID) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.open[id]
	if l == nil {
		l = new(lifetime)
		l.ctx, l.end = context.WithCancelCause(context.Background())
		s.open[id] = l
	}
	return l.ctx
}

// find returns the valid link of a token, not older than the call. Its error is Unauthenticated if
// there is none.
func (s *Shares) find(ctx context.Context, token string) (share.Share, error) {
	h, ok := share.ParseToken(token)
	if !ok {
		return share.Share{}, errEnded
	}
	if err := s.sync(ctx); err != nil {
		return share.Share{}, err
	}
	x, ok := s.store.Find(h)
	if !ok {
		return x, errEnded
	}
	if _, over := x.Ended(time.Now()); over {
		return x, errEnded
	}
	return x, nil
}

func (s *Shares) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	err := s.store.Sync(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return kind.Wrap(kind.Unavailable, "sync shares", "", err)
	}
	return core.LogError("sync shares", "", err)
}

// Onlooker returns the principal that the holder of a token is, and a context that ends with the link.
// Its error is Unauthenticated if the token is not valid.
func (s *Shares) Onlooker(ctx context.Context, token string) (core.Principal, context.Context, error) {
	x, err := s.find(ctx, token)
	if err != nil {
		return core.Principal{}, nil, err
	}
	return core.Principal{Tenant: x.Tenant, Sandbox: x.Sandbox, Process: x.Process, Until: x.Seq}, s.lifetimeOf(x.ID), nil
}

// Create stores a link, and returns it with its token. It returns NotFound for a process or sandbox
// that does not exist or belongs to another tenant, and Exhausted if the tenant has maxShares links.
func (s *Shares) Create(ctx context.Context, p core.Principal, to share.Target, age time.Duration) (share.Share, string, error) {
	x, token, err := share.New(p.Tenant, to, age, time.Now())
	if err == nil {
		err = s.check(ctx, p, &to)
	}
	if err != nil {
		return x, "", err
	}
	have, err := s.List(ctx, p)
	if err != nil {
		return x, "", err
	}
	if len(have) >= maxShares {
		return x, "", kind.Newf(kind.Exhausted, "make share", "", "there are %d links: revoke one first", len(have))
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	return x, token, core.LogError("make share", string(x.ID), s.store.Create(ctx, &x))
}

// check returns an error unless the principal may make a link for a target, and the target exists.
func (s *Shares) check(ctx context.Context, p core.Principal, to *share.Target) error {
	if err := p.RequireAPIKey("make share"); err != nil {
		return err
	}
	if to.Process == "" {
		_, err := s.ops.FindSandbox(ctx, p, to.Sandbox)
		return err
	}
	if _, err := s.ops.Process(ctx, p, to.Process); err != nil || to.Seq == 0 {
		return err
	}
	tail, err := s.ops.Tail(ctx, p, to.Process)
	if err == nil && to.Seq > tail.Last {
		err = kind.Newf(kind.Invalid, "make share", string(to.Process), "seq %d is after the last event, %d", to.Seq, tail.Last)
	}
	return err
}

// List returns the valid links of the principal's tenant, the oldest first, not older than the call.
func (s *Shares) List(ctx context.Context, p core.Principal) ([]share.Share, error) {
	if err := p.RequireAPIKey("list shares"); err != nil {
		return nil, err
	}
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	return s.store.List(func(x *share.Share) bool {
		_, over := x.Ended(now)
		return x.Tenant == p.Tenant && !over
	}), nil
}

// Revoke ends a link of the principal's tenant. It returns NotFound if there is none.
func (s *Shares) Revoke(ctx context.Context, p core.Principal, id share.ID) error {
	if err := p.RequireAPIKey("revoke share"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	return core.LogError("revoke share", string(id), s.store.Revoke(ctx, p.Tenant, id))
}
