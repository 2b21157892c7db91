package conversations

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/mounts"
)

// Create creates a conversation and returns when its runtime accepts clients. It returns NotFound
// if a bundle does not exist, Invalid if two bundles have a value of the same name, and Unavailable if
// no host takes the sandbox.
func (cs *Conversations) Create(ctx context.Context, p core.Principal, terms conversation.Terms, a Access) (Session, error) {
	if err := p.RequireAPIKey("create session"); err != nil {
		return Session{}, err
	}
	secrets, err := cs.cfg.Secrets(ctx, p.Tenant, terms.Bundles)
	if err != nil {
		return Session{}, err
	}
	c := conversation.State{ID: conversation.NewID(), Owner: p.Tenant, Terms: terms, Token: newToken(a)}
	if _, err := cs.requested(ctx, p, &c); err != nil { // before anything is stored
		return Session{}, err
	}
	if err := cs.cfg.Credits.Afford(ctx, p.Tenant); err != nil {
		return Session{}, err
	}
	c, err = cs.cfg.Store.Append(ctx, &conversation.State{ID: c.ID}, conversation.Opened{
		Owner: p.Tenant, Terms: terms, Sandbox: cs.sandboxOf(c.ID, 1), Token: c.Token, Gateway: cs.cfg.Keeper.ID(),
	})
	if err != nil {
		return Session{}, err
	}
	return cs.serve(ctx, p, &c, secrets)
}

// Access is what a client gets access by.
type Access struct {
	TTL  time.Duration // of its token and its sandbox
	Base string        // address for its connections
}

// newToken returns what a new token is signed from.
func newToken(a Access) conversation.Token {
	now := time.Now().Truncate(time.Second)
	return conversation.Token{Issued: now, Expires: now.Add(a.TTL), Nonce: rand.Text(), Base: a.Base}
}

// sandboxOf returns the sandbox of a generation of a conversation.
func (cs *Conversations) sandboxOf(id conversation.ID, generation uint32) sandbox.ID {
	return sandbox.KeyedID(cs.cfg.Derive("sandbox of " + string(id) + " " + strconv.FormatUint(uint64(generation), 10)))
}

// serve starts the sandbox and the runtime of a conversation that this gateway has claimed. After an
// error the conversation is over.
func (cs *Conversations) serve(ctx context.Context, p core.Principal, c *conversation.State, secrets Values) (Session, error) {
	served, err := cs.start(ctx, p, c, secrets)
	if err == nil {
		return cs.session(&served)
	}
	cs.giveUp(ctx, c)
	if kind.Is(err, kind.Exhausted) { // no host has room, which clients cannot tell from no host
		err = kind.Wrap(kind.Unavailable, "start session", string(c.ID), err)
	}
	return Session{}, err
}

// start starts the sandbox and the runtime, and stores that they serve.
func (cs *Conversations) start(ctx context.Context, p core.Principal, c *conversation.State, secrets Values) (conversation.State, error) {
	req, err := cs.requested(ctx, p, c)
	if err == nil {
		err = cs.cfg.Sandboxes.Ensure(ctx, p, c.Sandbox, cs.restored(c, req))
	}
	if err != nil {
		return *c, err
	}
	defer cs.cfg.Sandboxes.Hold(c.Sandbox)()
	id, err := cs.startRuntime(ctx, p, c, bootstrap.Config{Secrets: secrets.Values, Platform: platform(c)})
	if err != nil {
		return *c, err
	}
	return cs.cfg.Store.Append(ctx, c, conversation.Served{Runtime: id, Generations: secrets.Generations})
}

// giveUpTimeout limits what follows a failure.
const giveUpTimeout = 10 * time.Second

// giveUp ends the sandbox of a start that failed, and stores that.
func (cs *Conversations) giveUp(ctx context.Context, c *conversation.State) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	cs.cfg.Sandboxes.Abandon(ctx, c.Sandbox)
	status := c.Previous // a resume that failed changes nothing
	if status != conversation.Failed {
		status = conversation.Completed
	}
	if c.Generation == 1 {
		status = conversation.Failed
	}
	if _, err := cs.cfg.Store.Append(ctx, c, conversation.Ended{Status: status}); err != nil {
		cs.cfg.Slog.Warn("end conversation failed", "session", c.ID, "err", err)
	}
}

// requested returns the request for the sandbox of a conversation.
func (cs *Conversations) requested(ctx context.Context, p core.Principal, c *conversation.State) (sandbox.Requested, error) {
	req, err := cs.cfg.Sandboxes.Requested(ctx, p, c.Terms.Template, 0)
	req.Idle, req.HardEnd, req.Warning, req.Lifetime = idle, c.Token.Expires, warning, 0
	req.Metadata = map[string]string{"user_id": c.Owner, "end_user_id": c.Terms.EndUser, "chat_session_id": string(c.ID)}
	req.E2A.Persistence = c.Terms.Persistence
	req.E2A.Persistence.Conversation, req.E2A.Persistence.Generation = string(c.ID), c.Generation
	if of, err := workspace.ParseScope(c.Owner, c.Terms.App.ID, c.Terms.App.Set); err == nil { // other names have no workspace
		mounts.Mark(req.Metadata, of)
	}
	return req, err
}

// platform returns the platform's own values for the runtime.
func platform(c *conversation.State) map[string]string {
	out := map[string]string{"AGENT_TYPE": "deictic", "SESSION_ID": string(c.ID), "LLM_VENDOR": c.Terms.LLM.Vendor}
	for name, value := range map[string]string{"LLM_MODEL": c.Terms.LLM.Model, "LLM_BASE_URL": c.Terms.LLM.BaseURL, "AGENT_VERSION": c.Terms.AgentVersion} {
		if value != "" {
			out[name] = value
		}
	}
	if sets := c.Terms.App.Capabilities; sets != "" {
		app, err := json.Marshal(map[string]any{"name": c.Terms.App.ID, "set_id": c.Terms.App.Set, "capability_sets": json.RawMessage(sets)})
		if err == nil { // the sets were parsed when the conversation was created
			out[bootstrap.AppKey] = string(app)
		}
	}
	return out
}
