package conversations

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	attachTimeout = 10 * time.Second // from the upgrade to the runtime's answer
	detachTimeout = 2 * time.Second
	deliverWithin = 2 * time.Second // to store that an announcement was delivered
)

// Find returns a conversation, not older than the call if there is none in the view.
func (cs *Conversations) Find(ctx context.Context, id conversation.ID) (conversation.State, error) {
	c, ok := cs.cfg.Store.Get(id)
	if ok {
		return c, nil
	}
	if err := cs.cfg.Store.Sync(ctx); err != nil {
		return c, err
	}
	if c, ok = cs.cfg.Store.Get(id); !ok {
		return c, conversation.NotFound(id)
	}
	return c, nil
}

// Client is a client that is attached to a conversation.
type Client struct {
	cs      *Conversations
	c       conversation.State
	id      string // of the attachment, a UUID
	hold    *attachments.Attachment
	release func()
	warned  bool
	notice  string
}

// errGone is the error for a conversation whose sandbox has no runtime any more.
func errGone(id conversation.ID) error {
	return kind.New(kind.Unavailable, "attach", string(id), "the session has no running sandbox")
}

// Attach attaches a client to a conversation. Another client of it loses it. It returns Unavailable if no
// runtime serves the conversation.
func (cs *Conversations) Attach(ctx context.Context, id conversation.ID) (*Client, error) {
	cs.mount(ctx, id)
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := cs.sync(ctx); err != nil {
		return nil, err
	}
	c, ok := cs.cfg.Store.Get(id)
	st, runs := cs.cfg.Sandboxes.State(c.Sandbox)
	if !ok || c.Phase != conversation.Serving || !runs || !st.IsRunning() {
		return nil, errGone(id)
	}
	release := cs.cfg.Sandboxes.Hold(c.Sandbox)
	hold, err := cs.cfg.Keeper.Take(ctx, attachment.Session{
		ID: attachmentID(&c), Tenant: c.Owner, Surface: Surface, Sandbox: c.Sandbox, Policy: attachment.Policy{TTL: keepAttachment},
	})
	if err != nil {
		release()
		return nil, err
	}
	return &Client{cs: cs, c: c, id: newUUID(), hold: hold, release: release, warned: st.Warned, notice: c.Notice.ID}, nil
}

// mount shows the files of a conversation's workspace in its sandbox. An error is logged: a client that
// attaches again tries again.
func (cs *Conversations) mount(ctx context.Context, id conversation.ID) {
	c, ok := cs.cfg.Store.Get(id)
	st, runs := cs.cfg.Sandboxes.State(c.Sandbox)
	if !ok || !runs || !st.IsRunning() {
		return
	}
	if err := cs.cfg.Mounts.Mount(ctx, &st); err != nil {
		cs.cfg.Slog.Warn("mount workspace of a session failed", "session", id, "err", err)
	}
}

// keepAttachment is how long the log keeps an attachment: longer than any sandbox of a conversation.
const keepAttachment = 3 * time.Hour

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ID returns the id of the attachment, which the runtime answers.
func (cl *Client) ID() string { return cl.id }

// Generation returns the generation of the sandbox.
func (cl *Client) Generation() uint32 { return cl.c.Generation }

func (cl *Client) principal() core.Principal { return core.Principal{Tenant: cl.c.Owner} }

// Open opens the record of the runtime, at its beginning or at its end.
func (cl *Client) Open(ctx context.Context, end bool) (stream.Source, error) {
	return cl.cs.cfg.Processes.OpenAt(ctx, cl.principal(), cl.c.Runtime, end)
}

// Announce announces the client to the runtime. url is the address of the upgrade without credentials.
func (cl *Client) Announce(ctx context.Context, url string) error {
	claims := cl.cs.claims(&cl.c)
	claims.Session, claims.ID = cl.id, ""
	token, err := cl.cs.signer.Runtime(claims, time.Now())
	if err != nil {
		return err
	}
	m := frame.Message{Attach: &frame.Attach{ID: cl.id, Token: token, URL: url, CUA: claims.Desktop, Repeat: cl.c.Terms.Persistence.URL != ""}}
	// A frame of the client before, of which a part was sent, ends here.
	return cl.send(ctx, frame.AppendMessage([]byte{0}, m))
}

// Send sends a text message to the runtime.
func (cl *Client) Send(ctx context.Context, text []byte) error {
	cl.cs.saver.want(cl.c.Sandbox, time.Now().Add(saveInterval))
	return cl.send(ctx, frame.Append(nil, frame.Text, text))
}

func (cl *Client) send(ctx context.Context, data []byte) error {
	return cl.cs.cfg.Processes.SendInput(ctx, cl.principal(), cl.c.Runtime, data, false)
}

// Close detaches the client.
func (cl *Client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
	defer cancel()
	st, ok := cl.cs.cfg.Sandboxes.State(cl.c.Sandbox)
	if ok && st.IsRunning() && !cl.hold.Lost() {
		if err := cl.send(ctx, frame.AppendMessage([]byte{0}, frame.Message{Detach: &frame.Detach{ID: cl.id}})); err != nil {
			cl.cs.cfg.Slog.Debug("detach client from its runtime failed", "session", cl.c.ID, "err", err)
		}
	}
	cl.hold.Detach()
	if ok {
		cl.cs.cfg.Mounts.Flush(context.Background(), &st)
	}
	cl.release()
	cl.cs.saver.want(cl.c.Sandbox, time.Now())
}

// State is what has happened to an attached client.
type State uint8

// The states.
const (
	Attached  State = iota
	Replaced        // another client has the conversation
	Destroyed       // the sandbox has ended
)

// Check returns what has happened to the client, and the reason of an announcement that is new; empty:
// there is none. It belongs to one goroutine.
func (cl *Client) Check() (s State, reason string) {
	st, ok := cl.cs.cfg.Sandboxes.State(cl.c.Sandbox)
	switch {
	case ok && (st.Over() || st.Phase == sandbox.PhaseStopping):
		return Destroyed, ""
	case cl.hold.Lost():
		return Replaced, ""
	case st.Warned && !cl.warned:
		cl.warned = true
		return Attached, "timeout"
	}
	c, ok := cl.cs.cfg.Store.Get(cl.c.ID)
	if n := &c.Notice; ok && n.ID != cl.notice {
		cl.notice = n.ID
		return Attached, n.Reason
	}
	return Attached, ""
}

// Delivered stores that the last announcement was delivered.
func (cl *Client) Delivered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deliverWithin)
	defer cancel()
	_, err := cl.cs.cfg.Store.Change(ctx, cl.c.ID, func(c *conversation.State) (conversation.Body, error) {
		if c.Notice.ID != cl.notice || c.Notice.Delivered || c.Phase != conversation.Serving {
			return nil, nil
		}
		return conversation.Delivered{ID: cl.notice}, nil
	})
	if err != nil {
		cl.cs.cfg.Slog.Warn("store delivery of an announcement failed", "session", cl.c.ID, "err", err)
	}
}

// Ended returns whether a runtime that ended did so with its sandbox.
func (cl *Client) Ended(ctx context.Context) State {
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	if cl.cs.sync(ctx) != nil {
		return Attached
	}
	s, _ := cl.Check()
	return s
}
