package dataplane

import (
	"bytes"
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// Clients delivers a message to the clients that are attached to the conversation in a sandbox.
type Clients interface {
	// Cancel asks them to stop, and reports whether there was at least one.
	Cancel(ctx context.Context, id sandbox.ID, reason string) (delivered bool, err error)
}

// Agents are the agents of sandboxes without clients. *agents.Agents implements it.
type Agents interface {
	// Cancel asks the agent of a sandbox to finish its work, if one runs.
	Cancel(ctx context.Context, p core.Principal, id sandbox.ID) error
}

// noAgents is the Agents of a gateway without agents.
type noAgents struct{}

func (noAgents) Cancel(context.Context, core.Principal, sandbox.ID) error { return nil }

// noClients is the Clients of a gateway without conversations.
type noClients struct{}

func (noClients) Cancel(context.Context, sandbox.ID, string) (bool, error) { return false, nil }

// Reasons of a cancel.
const (
	reasonCredits = "credits_exhausted"
	reasonUser    = "user_request"
	reasonAdmin   = "admin_action"
	reasonTimeout = "timeout"
)

// canceled is the response to a cancel.
type canceled struct {
	ID        string `json:"vm_id"`
	Cancelled bool   `json:"cancelled"`
	Reason    string `json:"reason"`
}

// cancel asks the clients of a sandbox and its agent to stop. The sandbox goes on.
func (h *Handler) cancel(c *fiber.Ctx) error {
	reason, err := cancelReason(c)
	if err != nil {
		return err
	}
	st, err := h.Sandboxes.Find(c)
	if err != nil {
		return err
	}
	if !st.IsRunning() {
		return kind.New(kind.Conflict, "cancel", string(st.ID), "the sandbox is not running")
	}
	delivered, err := h.Clients.Cancel(c.UserContext(), st.ID, reason)
	if err == nil {
		err = h.Agents.Cancel(c.UserContext(), auth.From(c), st.ID)
	}
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, canceled{ID: strings.Clone(c.Params("id")), Cancelled: delivered, Reason: reason})
}

// cancelReason returns the reason in the body, which is optional.
func cancelReason(c *fiber.Ctx) (string, error) {
	raw, err := body.Read(c)
	if err != nil {
		return "", err
	}
	reason := reasonUser
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := body.Parse(raw, body.Field{Name: "reason", Into: &reason}); err != nil {
			return "", err
		}
	}
	switch reason {
	case reasonCredits, reasonUser, reasonAdmin, reasonTimeout:
		return reason, nil
	}
	return "", body.Invalid("reason must be credits_exhausted, user_request, admin_action or timeout")
}
