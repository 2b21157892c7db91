package conversations

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/mounts"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/sessiontoken"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Surface is the name of the protocol in attachments.
const Surface = "e2a"

const (
	idle    = time.Minute      // of a sandbox that no client is attached to
	warning = 10 * time.Second // before the end of a sandbox
)

// Sandboxes creates and ends sandboxes.
type Sandboxes interface {
	// Requested returns the request for a sandbox of a template.
	Requested(ctx context.Context, p core.Principal, template string, lifetime time.Duration) (sandbox.Requested, error)
	// Ensure creates a sandbox with an id that only the caller has, or waits for it.
	Ensure(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) error
	// State returns the state of a sandbox as of the view.
	State(id sandbox.ID) (sandbox.State, bool)
	// Reachable reports whether the lease of a sandbox's host is valid.
	Reachable(id sandbox.ID) bool
	// Sync waits until the view has everything stored before the call.
	Sync(ctx context.Context) error
	EndSandbox(ctx context.Context, p core.Principal, id sandbox.ID, cause string) error
	Abandon(ctx context.Context, id sandbox.ID)
	// Hold keeps a sandbox from ending for being idle.
	Hold(id sandbox.ID) (release func())
}

// Processes starts and uses the runtime.
type Processes interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error
	// OpenAt opens a record at its beginning or its end.
	OpenAt(ctx context.Context, p core.Principal, id process.ID, end bool) (stream.Source, error)
}

// Files keeps the files of conversations.
type Files interface {
	// Save stores the files of a sandbox, so that they outlive its host, instead of earlier ones.
	Save(ctx context.Context, p core.Principal, of conversation.ID, sbx sandbox.ID) error
	// Saved returns when files were saved last; zero: never.
	Saved(p core.Principal, of conversation.ID) time.Time
	// Restore returns the request for a sandbox that starts with the files. ok is false if there are none.
	Restore(p core.Principal, of conversation.ID, req sandbox.Requested) (out sandbox.Requested, ok bool)
	// Forget removes the files of conversations that are not known.
	Forget(ctx context.Context, known func(conversation.ID) bool) error
}

// Secrets returns the values of a tenant's bundles. It returns NotFound if one does not exist, and
// Invalid if two have a value of the same name.
type Secrets func(ctx context.Context, tenant string, bundles []string) (Values, error)

// Credits decides whether a tenant may start sandboxes.
type Credits interface {
	Afford(ctx context.Context, tenant string) error
}

// Values are the values of bundles, and the generations that they are from, by name.
type Values struct{ Values, Generations map[string]string }

// Config configures Conversations. All fields are required.
type Config struct {
	Store     *conversation.Store
	Sandboxes Sandboxes
	Processes Processes
	Files     Files
	Secrets   Secrets
	Keeper    *attachments.Keeper
	Mounts    *mounts.Mounts // shows workspaces in sandboxes
	Credits   Credits
	Derive    func(text string) string // derives a secret of the cluster
	Slog      *slog.Logger
}

// Conversations implements the operations on conversations. Its methods may be called concurrently.
type Conversations struct {
	cfg    Config
	signer *sessiontoken.Signer
	saver  saver
}

// New returns Conversations. It does no I/O.
func New(cfg Config) *Conversations {
	return &Conversations{cfg: cfg, signer: sessiontoken.New(cfg.Derive), saver: newSaver()}
}

// End ends a session of attachments: it has nothing that its sandbox does not have.
func End(context.Context, *attachment.Session) error { return nil }

// Session is what a client gets for a conversation.
type Session struct {
	conversation.State
	JWT string
}

// session returns what a client gets for a conversation.
func (cs *Conversations) session(c *conversation.State) (Session, error) {
	token, err := cs.signer.Client(cs.claims(c))
	return Session{State: *c, JWT: token}, err
}

// claims are those of a client's token.
func (cs *Conversations) claims(c *conversation.State) sessiontoken.Claims {
	return sessiontoken.Claims{
		Tenant: c.Owner, User: c.Owner, App: c.Terms.App.ID, Set: c.Terms.App.Set, Session: string(c.ID), Desktop: desktop(c),
		Issued: c.Token.Issued.Unix(), Expires: c.Token.Expires.Unix(), ID: c.Token.Nonce,
	}
}

// desktop reports whether the agent has a desktop.
func desktop(c *conversation.State) bool { return c.Terms.Template == "cua" }

// Check returns the claims of a client's valid token.
func (cs *Conversations) Check(token string) (sessiontoken.Claims, bool) {
	return cs.signer.Check(token, time.Now())
}

// Status returns the status of a conversation.
func (cs *Conversations) Status(c *conversation.State) conversation.Status {
	if c.Phase == conversation.Over {
		return c.Status
	}
	st, ok := cs.cfg.Sandboxes.State(c.Sandbox)
	switch {
	case !ok && c.Phase == conversation.Serving:
		return conversation.Unknown
	case st.Over():
		return ended(&st)
	case cs.cfg.Keeper.Attached(c.Owner, attachmentID(c)):
		return conversation.Running
	}
	return conversation.Idle
}

// ended returns the status of a conversation whose sandbox has ended.
func ended(st *sandbox.State) conversation.Status {
	if st.Phase == sandbox.PhaseDestroyed {
		return conversation.Completed
	}
	return conversation.Failed
}

// attachmentID returns the session of attachments for the current sandbox of a conversation.
func attachmentID(c *conversation.State) string { return string(c.Sandbox) }
