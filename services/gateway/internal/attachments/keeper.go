package attachments

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/due"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
)

const (
	leaseTTL = 4 * time.Second
	// interval is the time between two renewals of the lease, and between two searches for
	// sessions that are due.
	interval = leaseTTL / 4
	// sweepInterval is the time between two removals of old records.
	sweepInterval = 10 * time.Minute
	// endTimeout is how long the end of a session's processes may take. It is repeated.
	endTimeout = 20 * time.Second
	parallel   = 16
)

// End ends what belongs to a session of a surface: its processes, or its sandbox.
type End func(ctx context.Context, s *attachment.Session) error

// Sandboxes returns the state of sandboxes, as of a view.
type Sandboxes interface {
	Sandbox(id sandbox.ID) (sandbox.State, bool)
}

// Config configures a Keeper. All fields are required.
type Config struct {
	Store     *attachment.Store
	Sandboxes Sandboxes
	Ends      map[string]End // by surface
	Slog      *slog.Logger
}

// Keeper has the attachments of one run of a gateway. Its methods may be called concurrently.
type Keeper struct {
	cfg  Config
	run  string        // id of this run
	kick chan struct{} // has a value when a session is due
	open chan struct{} // closed when the lease is stored

	mu   sync.Mutex
	live map[string]*Attachment // by attachment.Session.Client
}

// New returns a keeper without attachments. It accepts clients while Run runs.
func New(cfg Config) *Keeper {
	return &Keeper{
		cfg: cfg, run: attachment.NewID(), kick: make(chan struct{}, 1), open: make(chan struct{}),
		live: make(map[string]*Attachment),
	}
}

// ID returns the run of the gateway.
func (k *Keeper) ID() string { return k.run }

// Store returns the store of the attachments.
func (k *Keeper) Store() *attachment.Store { return k.cfg.Store }

// Sync waits until the view of sessions has everything stored before the call.
func (k *Keeper) Sync(ctx context.Context) error { return k.cfg.Store.Sync(ctx) }

// Attached reports whether a session has a client, or may have one.
func (k *Keeper) Attached(tenant, id string) bool {
	s, ok := k.cfg.Store.Session(tenant, id)
	if !ok || s.Phase != attachment.Attached {
		return false
	}
	_, free := s.Free(k.cfg.Store.Holder(&s))
	return !free
}

// Left returns when the client of a session has left, also if its gateway has died. ok is false if it has
// not, or if there was none.
func (k *Keeper) Left(tenant, id string) (at time.Time, ok bool) {
	s, ok := k.cfg.Store.Session(tenant, id)
	if !ok {
		return time.Time{}, false
	}
	return s.Free(k.cfg.Store.Holder(&s))
}

// Gone reports whether a gateway that stored something at a time has died.
func (k *Keeper) Gone(run string, at time.Time) bool {
	return run != k.run && k.cfg.Store.Holder(&attachment.Session{Gateway: run, Since: at}).Gone
}

// Run renews the lease and ends sessions that are due, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if err := k.cfg.Store.Start(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		k.renewals(ctx)
		return nil
	})
	g.Go(func() error {
		k.ends(ctx)
		return nil
	})
	return g.Wait()
}

// renewals renews the lease, and compares the attachments with what is stored.
func (k *Keeper) renewals(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for failed := false; ; {
		err := k.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			k.cfg.Slog.Warn("renew lease failed", "err", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *Keeper) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTTL)
	defer cancel()
	if err := k.cfg.Store.Renew(ctx, k.run, leaseTTL); err != nil {
		return err
	}
	select {
	case <-k.open:
	default:
		close(k.open)
	}
	k.dropLost()
	k.detachAbandoned(ctx)
	return nil
}

// ends ends the sessions that are due, and removes old records.
func (k *Keeper) ends(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.kick:
		}
		if k.cfg.Store.Sync(ctx) == nil {
			k.endDue(ctx)
		}
		if time.Since(swept) < sweepInterval {
			continue
		}
		swept = time.Now()
		if err := k.cfg.Store.Sweep(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Slog.Warn("sweep attachments failed", "err", err)
		}
	}
}

// dropLost ends the attachments whose session another attachment has, or which has ended.
func (k *Keeper) dropLost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.live {
		s, ok := k.cfg.Store.Session(a.session.Tenant, a.session.ID)
		if ok && a.session.Rev != 0 && s.Rev > a.session.Rev {
			a.lose()
		}
	}
}

// detachAbandoned detaches the sessions that are stored as attached here but have no client.
func (k *Keeper) detachAbandoned(ctx context.Context) {
	for _, s := range k.cfg.Store.Sessions(func(s *attachment.Session) bool {
		return s.Phase == attachment.Attached && s.Gateway == k.run && !k.has(s.Client)
	}) {
		s.Phase = attachment.Detached
		k.warn("detach session failed", &s, k.cfg.Store.Put(ctx, &s))
	}
}

// has reports whether an attachment exists here.
func (k *Keeper) has(client string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live[client] != nil
}

// endDue ends the sessions that are due.
func (k *Keeper) endDue(ctx context.Context) {
	now := time.Now()
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range k.cfg.Store.Sessions(func(s *attachment.Session) bool { return s.Phase != attachment.Ended }) {
		box, _ := k.cfg.Sandboxes.Sandbox(s.Sandbox)
		actions, _ := due.Of(&box, []due.Session{{Session: s, Holder: k.cfg.Store.Holder(&s)}}, now)
		i := slices.IndexFunc(actions, func(a due.Action) bool { return a.Cause == due.Detached }) // the reaper does the others
		if end := k.cfg.Ends[s.Surface]; i >= 0 && end != nil {
			g.Go(func() error {
				k.end(ctx, actions[i], end)
				return nil
			})
		}
	}
	g.Wait() //nolint:errcheck // no function returns an error
}

// end ends a session, unless another gateway does.
func (k *Keeper) end(ctx context.Context, a due.Action, end End) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	s := &a.Session
	s.Phase, s.Gateway = attachment.Ending, k.run
	if err := k.cfg.Store.Put(ctx, s); err != nil {
		k.warn("end session failed", s, err)
		return
	}
	if a.Blocked {
		return // it is due again when the sandbox runs
	}
	if err := end(ctx, s); err != nil && !kind.Is(err, kind.NotFound) {
		k.warn("end session failed", s, err)
		return
	}
	s.Phase = attachment.Ended
	k.warn("end session failed", s, k.cfg.Store.Put(ctx, s))
}

// warn logs an error, unless another gateway was first.
func (k *Keeper) warn(msg string, s *attachment.Session, err error) {
	if err != nil && !kind.Is(err, kind.Conflict) {
		k.cfg.Slog.Warn(msg, "session", s.ID, "sandbox", s.Sandbox, "err", err)
	}
}

// due has sessions that are due ended at once.
func (k *Keeper) due() { waiting.Notify(k.kick) }
