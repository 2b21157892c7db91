package sessions

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

const pingInterval = 30 * time.Second

// Reasons of close frames.
const (
	shuttingDown = "server shutting down"
	destroyed    = "sandbox destroyed"
	unreachable  = "upstream unavailable"
	replaced     = "another connection has the session"
	noBinary     = "binary messages are not supported"
)

// connect serves GET /v1/sessions/{id}/ws. Credentials are judged before the upgrade. After it every
// problem is a close frame.
func (h *Handler) connect(c *fiber.Ctx) error {
	id, err := h.admitted(c)
	if err != nil {
		return err
	}
	at := position{}
	if q := c.Context().QueryArgs(); q.Has("after") {
		if at, err = parsePosition(c.Query("after")); err != nil {
			return err
		}
	}
	url := h.cfg.Base(c) + "/v1/sessions/" + string(id) + "/ws"
	return h.endpoint.Upgrade(c, auth.From(c).Tenant, websocket.Handler{
		Drain: func(conn *websocket.Conn) { conn.Close(websocket.GoingAway, shuttingDown) },
		Serve: func(ctx context.Context, conn *websocket.Conn) error {
			h.serve(ctx, conn, id, at, url)
			return nil
		},
	})
}

// admitted returns the conversation that a request may connect to. It is Unauthenticated without a valid
// token, and also if the conversation does not exist, which is not disclosed. It is Denied with a token of
// another conversation or tenant.
func (h *Handler) admitted(c *fiber.Ctx) (conversation.ID, error) {
	claims, ok := h.cfg.Conversations.Check(credential(c))
	if !ok {
		return "", unauthenticated()
	}
	auth.Set(c, core.Principal{Tenant: claims.Tenant}) // for the audit trail
	name := strings.Clone(c.Params("id"))
	if claims.Session != name {
		return "", kind.New(kind.Denied, "connect", "", "the token is for another session")
	}
	id, err := conversation.ParseID(name)
	var s conversation.State
	if err == nil {
		s, err = h.cfg.Conversations.Find(c.UserContext(), id)
	}
	switch {
	case kind.Is(err, kind.NotFound):
		return "", unauthenticated()
	case err != nil:
		return "", err
	case s.Owner != claims.Tenant:
		return "", kind.Wrap(kind.Denied, "connect", string(id), &core.ForeignError{Owner: s.Owner})
	}
	return id, nil
}

func unauthenticated() error {
	return kind.New(kind.Unauthenticated, "connect", "", "a valid session token is required (Authorization: Bearer, or ?token=)")
}

// credential returns the token of a request.
func credential(c *fiber.Ctx) string {
	const scheme = "bearer "
	if a := c.Get(fiber.HeaderAuthorization); a != "" {
		if len(a) > len(scheme) && strings.EqualFold(a[:len(scheme)], scheme) {
			return strings.TrimSpace(a[len(scheme):])
		}
		return ""
	}
	return c.Query("token")
}
