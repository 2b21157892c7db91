package attachments

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
)

// attachTimeout limits an attachment while the log cannot be reached. A client that waits longer
// gives up, and one that gets an answer tries again soon.
const attachTimeout = 5 * time.Second

// detachTimeout limits the detachment of a client that has left. A later pass repeats it.
const detachTimeout = 5 * time.Second

// Attachment is a client's hold on its session. Its methods may be called concurrently.
type Attachment struct {
	k       *Keeper
	session attachment.Session // its Rev is guarded by k.mu
	resumed bool
	lost    context.Context //nolint:containedctx // an event with functions that wait for it
	lose    context.CancelFunc
	detach  sync.Once
}

// Session returns the session's id.
func (a *Attachment) Session() string { return a.session.ID }

// State returns the session as it was attached.
func (a *Attachment) State() attachment.Session { return a.session }

// Resumed reports whether the session existed before.
func (a *Attachment) Resumed() bool { return a.resumed }

// Lost reports whether another attachment has the session, or it has ended.
func (a *Attachment) Lost() bool {
	s, ok := a.k.cfg.Store.Session(a.session.Tenant, a.session.ID)
	return ok && s.Rev > a.session.Rev || a.lost.Err() != nil
}

// OnLost calls f in a goroutine once another attachment has the session, or it has ended. Until
// then no goroutine waits for that. stop prevents the call, as that of [context.AfterFunc] does.
func (a *Attachment) OnLost(f func()) (stop func() bool) { return context.AfterFunc(a.lost, f) }

// Open attaches a client to a new session, of which the caller sets the tenant, the surface,
// the sandbox and the policy.
func (k *Keeper) Open(ctx context.Context, s attachment.Session) (*Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := k.ready(ctx); err != nil {
		return nil, err
	}
	s.ID, s.Rev = attachment.NewID(), 0
	return k.attach(ctx, s, false)
}

// Resume attaches a client to a session of its tenant that accept accepts. It returns NotFound
// if there is none any more, Conflict if the session has a client, and Unavailable if that
// cannot be decided yet.
func (k *Keeper) Resume(ctx context.Context, tenant, id string, accept func(*attachment.Session) bool) (*Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	id, err := attachment.ParseID(id)
	if err == nil {
		err = k.ready(ctx)
	}
	if err == nil {
		err = k.cfg.Store.Sync(ctx)
	}
	if err != nil {
		return nil, err
	}
	s, ok := k.cfg.Store.Session(tenant, id)
	if !ok || s.Phase == attachment.Ending || s.Phase == attachment.Ended || !accept(&s) {
		return nil, kind.New(kind.NotFound, "attach", id, "unknown session")
	}
	_, free := s.Free(k.cfg.Store.Holder(&s))
	if !free && (s.Gateway != k.run || k.has(s.Client)) {
		return nil, kind.New(kind.Conflict, "attach", id, "the session has a client")
	}
	return k.attach(ctx, s, true)
}

// Take attaches a client to a session with an id of the caller's, which it makes if there is none. A client
// that has the session loses it.
func (k *Keeper) Take(ctx context.Context, s attachment.Session) (*Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := k.ready(ctx); err != nil {
		return nil, err
	}
	for {
		if err := k.cfg.Store.Sync(ctx); err != nil {
			return nil, err
		}
		was, resumed := k.cfg.Store.Session(s.Tenant, s.ID)
		s.Rev = was.Rev
		a, err := k.attach(ctx, s, resumed)
		if !kind.Is(err, kind.Conflict) {
			return a, err
		}
	}
}

// ready waits until the lease is stored: without it others would take its sessions.
func (k *Keeper) ready(ctx context.Context) error {
	select {
	case <-k.open:
		return nil
	case <-ctx.Done():
		return kind.Wrap(kind.Unavailable, "attach", "", ctx.Err())
	}
}

// attach stores that the session has a client here.
func (k *Keeper) attach(ctx context.Context, s attachment.Session, resumed bool) (*Attachment, error) {
	s.Phase, s.Gateway, s.Client = attachment.Attached, k.run, attachment.NewID()
	a := &Attachment{k: k, session: s, resumed: resumed}
	a.lost, a.lose = context.WithCancel(context.Background())
	a.session.Rev = 0
	k.mu.Lock()
	k.live[s.Client] = a // before it is stored, so that no pass detaches it
	k.mu.Unlock()
	err := k.cfg.Store.Put(ctx, &s)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		delete(k.live, s.Client)
		return nil, err
	}
	a.session.Rev = s.Rev
	return a, nil
}

// Detach ends the attachment. What happens to the session is decided by its policy.
func (a *Attachment) Detach() {
	a.detach.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
		defer cancel()
		s := a.session
		s.Phase = attachment.Detached
		err := a.k.cfg.Store.Put(ctx, &s)
		a.k.mu.Lock()
		delete(a.k.live, s.Client)
		a.k.mu.Unlock()
		a.k.warn("detach session failed", &s, err)
		if s.Policy.Terminate {
			a.k.due()
		}
	})
}
