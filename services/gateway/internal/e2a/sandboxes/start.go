package sandboxes

import (
	"context"
	"maps"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/agents"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Agents starts the agents of sandboxes. *agents.Agents implements it.
type Agents interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, c bootstrap.Config, task bool) error
	Sync(ctx context.Context) error
	Status(sbx sandbox.ID) (agents.Status, bool)
}

// startAgent starts the agent of a request, also after the gateway that created the sandbox has died.
// After an error, a sandbox without an idempotency key is ended: the client has not got its id.
func (h *Handler) startAgent(c *fiber.Ctx, r *request, st *sandbox.State, keyed bool) error {
	if r.Agent == "" || !st.IsRunning() {
		return nil
	}
	p := auth.From(c)
	err := h.Agents.Start(c.UserContext(), p, st.ID, r.configuration(), r.Task != "")
	if err != nil && !keyed {
		h.Lifecycle.Abandon(c.UserContext(), st.ID)
	}
	return err
}

// configuration returns what the agent of a request gets. Those of the reserved variables that the
// request leaves open are empty.
func (r *request) configuration() bootstrap.Config {
	theirs := maps.Clone(r.EnvVars)
	if theirs == nil {
		theirs = make(map[string]string, len(r.AgentEnv))
	}
	maps.Copy(theirs, r.AgentEnv)
	own := map[string]string{
		"AGENT_TYPE": r.Agent, "TASK": r.Task, "LLM_KEY": r.LLMKey, "LLM_API_KEY": r.LLMKey, "LLM_MODEL": r.Model, "SESSION_ID": r.SessionID,
		bootstrap.AppKey: bootstrap.App(r.app()),
	}
	if r.AgentCmd != "" {
		own["AGENT_CMD"] = r.AgentCmd
	}
	return bootstrap.Config{Secrets: theirs, Platform: own}
}

// withAgent adds the status of the agent to a running sandbox.
func (h *Handler) withAgent(v vm, st *sandbox.State) vm {
	if !st.IsRunning() {
		return v
	}
	if a, ok := h.Agents.Status(st.ID); ok {
		v.AgentStatus, v.AgentExit, v.AgentError = a.State, a.Exit, a.Error
	}
	return v
}
