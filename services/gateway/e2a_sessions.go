package gateway

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/conversations"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/sessions"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// newConversations returns the operations on conversations.
func (s *server) newConversations() *conversations.Conversations {
	gateway := record.NewGateway(s.ops)
	return conversations.New(conversations.Config{
		Store: s.cfg.Log.Conversations(), Sandboxes: conversationSandboxes{&creator{s.ops, s.cfg.Limits}, s.ops.Core}, Processes: runtimes{gateway},
		Files: conversationFiles{s.ops.Core, s.ops.Snapshots}, Secrets: s.values, Keeper: s.keeper, Mounts: s.workspaces.mounts, Credits: s.books, Derive: s.ops.Core.DeriveKey, Slog: s.cfg.Slog,
	})
}

// newE2ASessions returns the surface for e2a's conversations.
func (s *server) newE2ASessions() *sessions.Handler {
	return sessions.New(sessions.Config{
		Conversations: s.conversations, Sockets: s.sockets, Outbound: s.cfg.Outbound.policy(), Sealer: s.ops.Core.Sealer, Slog: s.cfg.Slog,
		Base: func(c *fiber.Ctx) string { return route.WebSocketBase(c, s.cfg.Public.hosts(), s.cfg.Public.Secure()) },
	})
}

// values returns the values of bundles.
func (s *server) values(ctx context.Context, tenant string, names []string) (conversations.Values, error) {
	r, err := s.bundles.Resolve(ctx, tenant, names)
	out := conversations.Values{Values: r.Values, Generations: make(map[string]string, len(r.Heads))}
	for i := range r.Heads {
		out.Generations[string(r.Heads[i].Name)] = string(r.Heads[i].Generation)
	}
	return out, err
}

// conversationSandboxes creates the sandboxes of conversations.
type conversationSandboxes struct {
	*creator
	core *core.Core
}

// Requested implements [conversations.Sandboxes]. The template standard is the host's own files unless a
// template of that name exists.
func (cr conversationSandboxes) Requested(ctx context.Context, p core.Principal, name string, lifetime time.Duration) (sandbox.Requested, error) {
	req, err := cr.creator.Requested(ctx, p, name, lifetime)
	switch {
	case !kind.Is(err, kind.NotFound):
		return req, err
	case name == "standard":
		return cr.creator.Requested(ctx, p, template.Base, lifetime)
	}
	return req, kind.Coded(kind.Unavailable, "create sandbox", "", "template_not_built", "the template "+name+" is not built: run millrace template build "+name)
}

// State implements [conversations.Sandboxes].
func (cr conversationSandboxes) State(id sandbox.ID) (sandbox.State, bool) {
	return cr.core.View.Sandbox(id)
}

// Reachable implements [conversations.Sandboxes].
func (cr conversationSandboxes) Reachable(id sandbox.ID) bool {
	st, ok := cr.core.View.Sandbox(id)
	return ok && cr.core.HostAlive(st.Host)
}

// Sync implements [conversations.Sandboxes].
func (cr conversationSandboxes) Sync(ctx context.Context) error { return cr.core.Sync(ctx) }

// EndSandbox implements [conversations.Sandboxes].
func (cr conversationSandboxes) EndSandbox(ctx context.Context, p core.Principal, id sandbox.ID, cause string) error {
	return cr.ops.Lifecycle.EndSandbox(ctx, p, id, cause)
}

// Abandon implements [conversations.Sandboxes].
func (cr conversationSandboxes) Abandon(ctx context.Context, id sandbox.ID) {
	cr.ops.Lifecycle.Abandon(ctx, id)
}

// Hold implements [conversations.Sandboxes].
func (cr conversationSandboxes) Hold(id sandbox.ID) (release func()) {
	release, _ = cr.ops.Lifecycle.Hold(id)
	return release
}

// runtimes are the runtimes of conversations.
type runtimes struct{ record.Gateway }

// Start implements [conversations.Processes].
func (r runtimes) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error) {
	return r.Gateway.Start(ctx, p, sbx, spec, opt)
}

// OpenAt implements [conversations.Processes].
func (r runtimes) OpenAt(ctx context.Context, p core.Principal, id process.ID, end bool) (stream.Source, error) {
	o, err := record.Open(ctx, r.Gateway, p, id, record.Options{Position: record.Position{Now: end}, Follow: true})
	return o.Source, err
}

// conversationFiles keeps the files of conversations as layers, which are named by their conversation.
type conversationFiles struct {
	core      *core.Core
	snapshots *snapshots.Snapshots
}

// layerOf returns the name of the layers of a conversation.
func layerOf(id conversation.ID) string { return snapshots.ConversationLayers + string(id) }

// Save implements [conversations.Files].
func (f conversationFiles) Save(ctx context.Context, p core.Principal, of conversation.ID, sbx sandbox.ID) error {
	take := command.TakeSnapshot{ID: sandbox.NewSnapshotID(), Internal: true, Layer: layerOf(of)}
	if err := f.snapshots.EnsureLayer(ctx, p, sbx, take); err != nil {
		return err
	}
	if err := f.snapshots.CopyLayer(ctx, take.ID); err != nil {
		return err
	}
	return f.snapshots.DropReplaced(ctx, p, take.Layer)
}

// Saved implements [conversations.Files].
func (f conversationFiles) Saved(p core.Principal, of conversation.ID) time.Time {
	s, _ := f.snapshots.Layer(p, layerOf(of), func(*sandbox.Snapshot) bool { return true })
	return s.Taken
}

// Restore implements [conversations.Files].
func (f conversationFiles) Restore(p core.Principal, of conversation.ID, req sandbox.Requested) (sandbox.Requested, bool) {
	s, ok := f.snapshots.Layer(p, layerOf(of), func(*sandbox.Snapshot) bool { return true })
	if !ok {
		return req, false
	}
	return snapshots.From(&s, req), true
}

// Forget implements [conversations.Files].
func (f conversationFiles) Forget(ctx context.Context, known func(conversation.ID) bool) error {
	return f.snapshots.DropLayers(ctx, snapshots.ConversationLayers, func(s *sandbox.Snapshot) bool {
		return known(conversation.ID(strings.TrimPrefix(s.Layer, snapshots.ConversationLayers)))
	})
}
