// Package writers serves the writer's lease of a terminal: one client types, all others watch.
//
// # One writer
// Which client may type is a fact in the log ([attachment.Writer]), which changes by compare-and-append, so
// that of two clients at two gateways that take a lease one succeeds. A client renews its lease with each
// request; the lease ends 15 s after the last one, or when the lease of the gateway that stored it has
// ended. The holder of a lease may use any gateway.
//
// # Hand-over
// A client that asks for the lease of another one gets a lease of its own, which becomes valid when the
// other client hands over or releases.
//
// The lease binds the clients that use these routes. Programs that send input in other ways, such as
// /v1/processes/{id}/stdin, need no lease.
package writers

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

const (
	// Header is the header with the id of a client's lease.
	Header = "Millrace-Writer"

	maxName   = 64
	unnamed   = "unnamed client"
	renewable = attachment.WriterTTL / 3 // age at which input renews a lease
)

// Operations are the operations on terminals.
type Operations interface {
	record.Inputs
	Process(ctx context.Context, p core.Principal, id process.ID) (process.Summary, error)
	Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error
}

// Handler serves the routes. Its methods may be called concurrently.
type Handler struct {
	store *attachment.Store
	run   string // of this gateway
	ops   Operations
}

// New returns the surface of a run of a gateway.
func New(store *attachment.Store, run string, ops Operations) *Handler {
	return &Handler{store: store, run: run, ops: ops}
}

// Register adds the routes. The principal must be set before.
func (h *Handler) Register(r fiber.Router) {
	r.Get("/v1/processes/:id/writer", h.get)
	r.Post("/v1/processes/:id/writer", h.take)
	r.Delete("/v1/processes/:id/writer", h.release)
	r.Post("/v1/processes/:id/input", h.input)
	r.Post("/v1/processes/:id/size", h.size)
}

// shown is a writer as JSON.
type shown struct {
	Held   bool       `json:"held"`
	Name   string     `json:"name,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Asked  string     `json:"asked,omitempty"`
	Lease  string     `json:"lease,omitempty"`
	Writes *bool      `json:"writes,omitempty"`
	TTL    int64      `json:"ttl_ms,omitempty"`
}

func show(w *attachment.Writer, held bool) shown {
	out := shown{Held: held}
	if held {
		out.Name, out.Since = w.Holder.Name, textenc.OptionalTime(w.Holder.Since)
		if time.Since(w.Asked.Since) < attachment.WriterTTL {
			out.Asked = w.Asked.Name
		}
	}
	return out
}

// terminal returns the process of a request, which must have a terminal.
func (h *Handler) terminal(ctx context.Context, c *fiber.Ctx) (process.ID, error) {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return "", err
	}
	s, err := h.ops.Process(ctx, auth.From(c), id)
	if err == nil && s.Spec.PTY == nil {
		err = kind.New(kind.Invalid, "find terminal", string(id), "the process has no terminal")
	}
	return id, err
}

// leaseOf returns the hash of the lease in the header, and its id; empty if there is none.
func leaseOf(c *fiber.Ctx) (attachment.LeaseHash, string, error) {
	v := c.Get(Header)
	if v == "" {
		return attachment.LeaseHash{}, "", nil
	}
	id, err := attachment.ParseID(strings.Clone(v))
	if err != nil {
		return attachment.LeaseHash{}, "", kind.Newf(kind.Invalid, "parse lease", "", "%s: must be a lease", Header)
	}
	return attachment.HashLease(id), id, nil
}

// change applies do to the writer of a terminal and stores the result, again if another client was first.
func (h *Handler) change(ctx context.Context, p core.Principal, id process.ID, do func(w *attachment.Writer, held bool, now time.Time) error) (attachment.Writer, error) {
	for {
		if err := h.store.Sync(ctx); err != nil {
			return attachment.Writer{}, core.LogError("sync", string(id), err)
		}
		now := time.Now()
		w, held := h.store.Writer(p.Tenant, id, now)
		if err := do(&w, held, now); err != nil {
			return w, err
		}
		w.Gateway = h.run
		if err := h.store.PutWriter(ctx, &w); !kind.Is(err, kind.Conflict) {
			return w, core.LogError("store writer", string(id), err)
		}
	}
}

// get responds with the writer.
func (h *Handler) get(c *fiber.Ctx) error {
	ctx, cancel := record.Context(c)
	defer cancel()
	id, err := h.terminal(ctx, c)
	if err != nil {
		return err
	}
	if err := h.store.Sync(ctx); err != nil {
		return core.LogError("sync", string(id), err)
	}
	w, held := h.store.Writer(auth.From(c).Tenant, id, time.Now())
	return c.JSON(show(&w, held))
}

// request is the body of a POST.
type request struct {
	Name     string `json:"name"`
	Ask      bool   `json:"ask"`
	HandOver bool   `json:"hand_over"`
}

// name returns the name of a client, which others see.
func (r *request) name() (string, error) {
	if r.Name == "" {
		return unnamed, nil
	}
	if len(r.Name) > maxName || !utf8.ValidString(r.Name) || strings.ContainsFunc(r.Name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return "", kind.Newf(kind.Invalid, "take lease", "", "name must have at most %d bytes and only printable characters", maxName)
	}
	return r.Name, nil
}

// take takes, renews, asks for, or hands over the lease.
func (h *Handler) take(c *fiber.Ctx) error {
	var req request
	if len(c.Request().Body()) > 0 {
		if err := record.Read(c, &req); err != nil {
			return err
		}
	}
	name, err := req.name()
	if err != nil {
		return err
	}
	hash, lease, err := leaseOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	id, err := h.terminal(ctx, c)
	if err != nil {
		return err
	}
	if lease == "" {
		lease = attachment.NewID()
		hash = attachment.HashLease(lease)
	}
	writes := false
	w, err := h.change(ctx, auth.From(c), id, func(w *attachment.Writer, held bool, now time.Time) (err error) {
		if req.HandOver {
			return w.HandOver(hash, held, now)
		}
		writes, err = w.Take(attachment.Claim{Lease: hash, Name: name}, req.Ask, held, now)
		return err
	})
	if err != nil {
		return err
	}
	out := show(&w, true)
	out.Lease, out.Writes, out.TTL = lease, &writes, attachment.WriterTTL.Milliseconds()
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(out)
}

// release ends the lease of the client.
func (h *Handler) release(c *fiber.Ctx) error {
	hash, err := required(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	id, err := h.terminal(ctx, c)
	if err != nil {
		return err
	}
	_, err = h.change(ctx, auth.From(c), id, func(w *attachment.Writer, held bool, now time.Time) error {
		return w.Release(hash, held, now)
	})
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// required returns the hash of the lease in the header. The zero value is a lease that no client has.
func required(c *fiber.Ctx) (attachment.LeaseHash, error) {
	hash, lease, err := leaseOf(c)
	if err == nil && lease == "" {
		hash = attachment.HashLease(lease)
	}
	return hash, err
}

// writer returns the terminal of a request whose client has the lease, and renews the lease. Its error is a
// Conflict that names the holder if the client has not.
func (h *Handler) writer(ctx context.Context, c *fiber.Ctx) (process.ID, error) {
	hash, err := required(c)
	if err != nil {
		return "", err
	}
	id, err := h.terminal(ctx, c)
	if err != nil {
		return id, err
	}
	if err := h.store.Sync(ctx); err != nil {
		return id, core.LogError("sync", string(id), err)
	}
	p, now := auth.From(c), time.Now()
	w, held := h.store.Writer(p.Tenant, id, now)
	if !held || w.Holder.Lease != hash {
		return id, w.Refusal(held)
	}
	if now.Sub(w.Received) < renewable && w.Gateway == h.run {
		return id, nil
	}
	_, err = h.change(ctx, p, id, func(w *attachment.Writer, held bool, _ time.Time) error {
		if !held || w.Holder.Lease != hash {
			return w.Refusal(held)
		}
		return nil
	})
	return id, err
}

// input sends the body to the terminal.
func (h *Handler) input(c *fiber.Ctx) error {
	ctx, cancel := record.Context(c)
	defer cancel()
	id, err := h.writer(ctx, c)
	if err == nil {
		err = record.SendInput(ctx, c, h.ops, id)
	}
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// size sets the size of the terminal, {"cols": 80, "rows": 24}.
func (h *Handler) size(c *fiber.Ctx) error {
	var req textenc.Size
	if err := record.Read(c, &req); err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	id, err := h.writer(ctx, c)
	if err == nil {
		err = h.ops.Resize(ctx, auth.From(c), id, process.Size{Cols: req.Cols, Rows: req.Rows})
	}
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
