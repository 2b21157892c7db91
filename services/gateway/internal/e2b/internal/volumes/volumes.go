package volumes

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// Store stores volumes.
type Store interface {
	CreateVolume(ctx context.Context, p core.Principal, name string) (sandbox.Volume, error)
	Volume(ctx context.Context, p core.Principal, id sandbox.VolumeID) (sandbox.Volume, error)
	Volumes(ctx context.Context, p core.Principal) ([]sandbox.Volume, error)
	DeleteVolume(ctx context.Context, p core.Principal, id sandbox.VolumeID) error
	VolumeToken(id sandbox.VolumeID) string
}

// Handler serves volumes.
type Handler struct{ store Store }

// New returns a handler.
func New(s Store) *Handler { return &Handler{s} }

// volumeBody is E2B's Volume and, with a token, VolumeAndToken.
type volumeBody struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

func (h *Handler) withToken(v *sandbox.Volume) volumeBody {
	return volumeBody{VolumeID: string(v.ID), Name: v.Name, Token: h.store.VolumeToken(v.ID)}
}

// Create serves POST /volumes.
func (h *Handler) Create(c *fiber.Ctx) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	v, err := h.store.CreateVolume(c.UserContext(), auth.From(c), body.Name)
	if kind.Is(err, kind.Conflict) {
		return httperr.WriteAs(c, fiber.StatusBadRequest, err) // as E2B does
	}
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(h.withToken(&v))
}

// List serves GET /volumes.
func (h *Handler) List(c *fiber.Ctx) error {
	all, err := h.store.Volumes(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	out := make([]volumeBody, len(all))
	for i, v := range all {
		out[i] = volumeBody{VolumeID: string(v.ID), Name: v.Name}
	}
	return c.JSON(out)
}

// Get serves GET /volumes/:id.
func (h *Handler) Get(c *fiber.Ctx) error {
	id, err := sandbox.ParseVolumeID(c.Params("id"))
	if err != nil {
		return err
	}
	v, err := h.store.Volume(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(h.withToken(&v))
}

// Delete serves DELETE /volumes/:id.
func (h *Handler) Delete(c *fiber.Ctx) error {
	id, err := sandbox.ParseVolumeID(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.store.DeleteVolume(c.UserContext(), auth.From(c), id); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
