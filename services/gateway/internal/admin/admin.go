// Package admin serves a gateway's operators and their probes.
package admin

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/hosts"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// Handler implements the surface.
type Handler struct {
	core       *core.Core
	hosts      *hosts.Hosts
	readyAfter <-chan struct{} // the gateway is not ready before it is closed; nil: no condition
	draining   atomic.Bool
}

// New returns the surface. Unless after is nil, the gateway is not ready before after is
// closed.
func New(c *core.Core, hs *hosts.Hosts, after <-chan struct{}) *Handler {
	return &Handler{core: c, hosts: hs, readyAfter: after}
}

// Drain reports the gateway as not ready from now on.
func (h *Handler) Drain() { h.draining.Store(true) }

// RegisterProbes adds the public routes.
func (h *Handler) RegisterProbes(r fiber.Router) {
	r.Get("/livez", func(c *fiber.Ctx) error { return c.SendString("ok") })
	r.Get("/readyz", h.ready)
}

// Health serves GET /health with the text of E2B's API, which its users' probes may compare.
func Health(c *fiber.Ctx) error { return c.SendString("Health check successful") }

// ready responds with 200 if the log can be reached and the view has caught up with it.
func (h *Handler) ready(c *fiber.Ctx) error {
	if err := h.Ready(c.UserContext()); err != nil {
		return httperr.Answer(c, err)
	}
	return c.SendString("ready")
}

// Ready returns nil if the gateway serves: it neither starts nor drains, and its view has caught up
// with the log.
func (h *Handler) Ready(ctx context.Context) error {
	if h.draining.Load() {
		return kind.New(kind.Unavailable, "ready", "", "the gateway is shutting down")
	}
	if h.readyAfter != nil {
		select {
		case <-h.readyAfter:
		default:
			return kind.New(kind.Unavailable, "ready", "", "the gateway is starting")
		}
	}
	return h.core.Ready(ctx)
}

// host is a host in a response to operators.
type host struct {
	Name        string     `json:"name"`
	State       string     `json:"state"` // alive, starting, draining, silent (its lease has expired) or gone (it ended its lease)
	Alive       bool       `json:"alive"`
	Epoch       uint64     `json:"epoch"`
	Lease       lease      `json:"lease"`
	Drivers     []string   `json:"drivers"`
	Isolation   []string   `json:"isolations"` // of the drivers, in the same order
	Enforced    [][]string `json:"enforced"`   // limits that each driver enforces, in the same order
	Capacity    uint32     `json:"capacity"`   // maximum number of sandboxes
	Sandboxes   uint32     `json:"sandboxes"`
	Undrainable int        `json:"undrainable"` // number of items that only this draining host has and that would be lost with it
	Processes   uint32     `json:"processes"`
	CPUs        uint32     `json:"cpus"`
	Load1       float64    `json:"load1"`
	Memory      memory     `json:"memory"`
	Version     string     `json:"version"`
}

type lease struct {
	TTLMillis int64 `json:"ttl_ms"`
	AgeMillis int64 `json:"age_ms"` // since this gateway last received it
}

type memory struct {
	Total uint64 `json:"total_bytes"`
	Free  uint64 `json:"free_bytes"`
}

// Hosts serves GET /v1/hosts with all hosts that have or had a lease.
func (h *Handler) Hosts(c *fiber.Ctx) error {
	if err := h.core.Sync(c.UserContext()); err != nil {
		return err
	}
	now := time.Now()
	out, undrainable := []host{}, h.hosts.CountUndrainable()
	for _, x := range h.hosts.All(c.UserContext()) {
		v := host{
			Undrainable: undrainable[x.Lease.Host],
			Name:        x.Lease.Host, Alive: x.Alive(now), Epoch: x.Epoch, Drivers: x.Drivers,
			Lease:    lease{TTLMillis: x.TTL.Milliseconds(), AgeMillis: now.Sub(x.Received).Milliseconds()},
			Capacity: x.Capacity, Sandboxes: x.Sandboxes, Processes: x.Processes,
			CPUs: x.CPUs, Load1: x.Load1, Memory: memory{x.MemoryTotal, x.MemoryFree}, Version: x.Version,
		}
		v.State = state(&x, now)
		if v.Drivers == nil {
			v.Drivers = []string{}
		}
		if v.Isolation = x.Isolations; v.Isolation == nil {
			v.Isolation = []string{}
		}
		v.Enforced = make([][]string, len(v.Drivers))
		for i := range v.Enforced {
			v.Enforced[i] = []string{}
			if i < len(x.Enforced) {
				v.Enforced[i] = strings.Fields(x.Enforced[i])
			}
		}
		out = append(out, v)
	}
	return c.JSON(fiber.Map{"hosts": out})
}

func state(x *fleet.Host, now time.Time) string {
	switch {
	case x.Gone:
		return "gone"
	case !x.Alive(now):
		return "silent"
	case x.Starting:
		return "starting"
	case x.Draining:
		return "draining"
	}
	return "alive"
}

// Undrainable serves GET /v1/hosts/:name/undrainable with the items that exist only on this host. A host that
// accepts no sandboxes is safe to switch off if that is nothing.
func (h *Handler) Undrainable(c *fiber.Ctx) error {
	x, items, err := h.hosts.Undrainable(c.UserContext(), strings.Clone(c.Params("name")))
	if err != nil {
		return err
	}
	now := state(&x, time.Now())
	takes := now == "alive" || now == "starting"
	return c.JSON(fiber.Map{"host": x.Lease.Host, "state": now, "undrainable": items, "safe": !takes && len(items) == 0})
}

// DrainHost serves POST /v1/hosts/:name/drain and undrain: the host stops or resumes
// accepting new sandboxes.
func (h *Handler) DrainHost(drain bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if err := h.hosts.Drain(c.UserContext(), strings.Clone(c.Params("name")), drain); err != nil {
			return err
		}
		return c.SendStatus(fiber.StatusNoContent)
	}
}
