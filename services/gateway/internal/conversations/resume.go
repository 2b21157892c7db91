package conversations

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	// resumeTimeout limits a resume, with the time until a host has room.
	resumeTimeout = 90 * time.Second
	// claimCheck is how often a gateway that waits looks whether the one that claimed a start has died.
	claimCheck = time.Second
)

// Resume serves a conversation by a new sandbox. Requests that follow within a short time, at any
// gateway, have the same result. It returns NotFound for an id that does not exist, and Denied with
// the owner for another tenant's. A missing bundle is a Precondition.
func (cs *Conversations) Resume(ctx context.Context, p core.Principal, id conversation.ID, a Access) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	if err := p.RequireAPIKey("resume session"); err != nil {
		return Session{}, err
	}
	if err := cs.sync(ctx); err != nil {
		return Session{}, err
	}
	for waited := false; ; {
		c, err := cs.owned(p, id)
		if err != nil {
			return Session{}, err
		}
		switch {
		case cs.repeats(&c):
			return cs.session(&c)
		case waited && c.Phase == conversation.Over:
			return Session{}, kind.New(kind.Unavailable, "resume session", string(id), "the session could not be resumed, try again")
		case c.Phase == conversation.Starting && !cs.stale(&c, time.Now()):
			waited = c.Generation > 1
			if err := cs.wait(ctx, &c); err != nil {
				return Session{}, err
			}
			continue
		}
		s, err := cs.claim(ctx, p, &c, a)
		if !kind.Is(err, kind.Conflict) {
			return s, err
		}
	}
}

func (cs *Conversations) sync(ctx context.Context) error {
	if err := cs.cfg.Sandboxes.Sync(ctx); err != nil {
		return err
	}
	return cs.cfg.Store.Sync(ctx)
}

// owned returns a conversation of a principal.
func (cs *Conversations) owned(p core.Principal, id conversation.ID) (conversation.State, error) {
	c, ok := cs.cfg.Store.Get(id)
	switch {
	case !ok:
		return c, conversation.NotFound(id)
	case c.Owner != p.Tenant:
		return c, &kind.Error{
			Op: "resume session", ID: string(id), Kind: kind.Denied, Msg: "the session belongs to another tenant",
			Code: "cross_tenant_resume_denied", Err: &core.ForeignError{Owner: c.Owner},
		}
	}
	return c, nil
}

// repeats reports whether a resume has the result of the last one.
func (cs *Conversations) repeats(c *conversation.State) bool {
	if !c.Repeats(time.Now()) {
		return false
	}
	st, ok := cs.cfg.Sandboxes.State(c.Sandbox)
	return !ok || !st.Over() && st.Phase != sandbox.PhaseStopping
}

// stale reports whether the gateway that claimed a start has died, or does not continue.
func (cs *Conversations) stale(c *conversation.State, now time.Time) bool {
	return cs.cfg.Keeper.Gone(c.Claim.Gateway, c.Claim.At) || now.Sub(c.Claim.At) > 2*resumeTimeout
}

// wait waits until a start has ended, or its gateway may have died.
func (cs *Conversations) wait(ctx context.Context, c *conversation.State) error {
	check, cancel := context.WithTimeout(ctx, claimCheck)
	defer cancel()
	_, err := cs.cfg.Store.Await(check, c.ID, func(s *conversation.State) bool { return s.Rev != c.Rev })
	if err != nil && ctx.Err() == nil && check.Err() != nil {
		return nil // it is looked at again
	}
	return kind.Wrap(kind.Unavailable, "resume session", string(c.ID), err)
}

// claim claims a resume, or takes over the start of a gateway that has died, and performs it.
func (cs *Conversations) claim(ctx context.Context, p core.Principal, was *conversation.State, a Access) (Session, error) {
	secrets, err := cs.cfg.Secrets(ctx, p.Tenant, was.Terms.Bundles)
	if kind.Is(err, kind.NotFound) {
		return Session{}, &kind.Error{
			Op: "resume session", ID: string(was.ID), Kind: kind.Precondition, Code: "secret_bundle_not_found_at_resume",
			Msg: "a secret bundle of the session was deleted", Err: err,
		}
	}
	if err != nil {
		return Session{}, err
	}
	var b conversation.Body = conversation.TakenOver{Gateway: cs.cfg.Keeper.ID(), Previous: cs.Status(was)}
	if was.Phase != conversation.Starting {
		if err := cs.cfg.Credits.Afford(ctx, p.Tenant); err != nil {
			return Session{}, err
		}
		b = conversation.Claimed{
			Sandbox: cs.sandboxOf(was.ID, was.Generation+1), Token: newToken(a), Gateway: cs.cfg.Keeper.ID(), Previous: cs.Status(was),
		}
	}
	c, err := cs.cfg.Store.Append(ctx, was, b)
	if err != nil {
		return Session{}, err
	}
	cs.endPrevious(ctx, p, &c)
	return cs.serve(ctx, p, &c, secrets)
}

// endPrevious saves the files of the sandbox of the previous generation, and ends it, so that two never
// serve a conversation.
func (cs *Conversations) endPrevious(ctx context.Context, p core.Principal, c *conversation.State) {
	if c.Generation < 2 {
		return
	}
	old := cs.sandboxOf(c.ID, c.Generation-1)
	st, ok := cs.cfg.Sandboxes.State(old)
	if !ok || st.Over() {
		return
	}
	if st.IsRunning() {
		cs.cfg.Mounts.Flush(ctx, &st)
		cs.save(ctx, c, old)
	}
	if err := cs.cfg.Sandboxes.EndSandbox(ctx, p, old, sandbox.CauseUser); err != nil && !kind.Is(err, kind.NotFound) {
		cs.cfg.Slog.Warn("end sandbox of a resumed session failed", "session", c.ID, "sandbox", old, "err", err)
	}
}
