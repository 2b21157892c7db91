package sandboxes

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
)

// incomplete is the body of a list that may lack changes on a silent host.
type incomplete struct {
	Sandboxes []vm `json:"sandboxes"`
	Partial   bool `json:"partial"`
}

// list serves GET /v1/sandboxes.
func (h *Handler) list(c *fiber.Ctx) error {
	if err := h.View.Sync(c.UserContext()); err != nil {
		return err
	}
	if err := h.Agents.Sync(c.UserContext()); err != nil {
		return err
	}
	hosts := h.hosts(c)
	if len(hosts) == 0 {
		return errNoHosts()
	}
	found := h.Lifecycle.Sandboxes(auth.From(c), h.shown)
	out := make([]vm, len(found))
	partial := false
	for i := range found {
		out[i] = h.withAgent(vmOf(&found[i]), &found[i])
		partial = partial || h.onSilentHost(&found[i], hosts)
	}
	if partial {
		return body.Write(c, fiber.StatusOK, incomplete{out, true})
	}
	return body.Write(c, fiber.StatusOK, out)
}

func errNoHosts() error {
	return kind.Coded(kind.Unavailable, "list sandboxes", "", "no_hosts", "no host is registered")
}

// hosts returns the registered hosts by name: those that did not leave and were not declared lost.
func (h *Handler) hosts(c *fiber.Ctx) map[string]fleet.Host {
	out := make(map[string]fleet.Host)
	for _, x := range h.Hosts.All(c.UserContext()) {
		if !x.Gone {
			out[x.Host] = x
		}
	}
	return out
}

// onSilentHost reports whether a host that does not answer has, or had when it was lost, the sandbox.
// A host renews its lease four times in the lease's time to live.
func (h *Handler) onSilentHost(st *sandbox.State, registered map[string]fleet.Host) bool {
	if st.Host == "" || st.Over() && st.Phase != sandbox.PhaseLost {
		return false
	}
	x, ok := registered[st.Host]
	return !ok || h.Now().Sub(x.Received) > x.TTL/2
}

// get serves GET /v1/sandboxes/:id.
func (h *Handler) get(c *fiber.Ctx) error {
	st, err := h.Find(c)
	if err == nil {
		err = h.Agents.Sync(c.UserContext())
	}
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, h.withAgent(vmOf(&st), &st))
}

// removed is the body of a DELETE.
type removed struct {
	ID    string `json:"vm_id"`
	State string `json:"state"`
}

// remove serves DELETE /v1/sandboxes/:id. It responds when nothing of the sandbox is left.
func (h *Handler) remove(c *fiber.Ctx) error {
	st, err := h.Find(c)
	if err != nil {
		return err
	}
	h.Workspaces.Flush(c.UserContext(), &st)
	if err := h.Lifecycle.DestroySandbox(c.UserContext(), auth.From(c), st.ID); err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, removed{vmid.Of(st.ID), stateDestroyed})
}
