package e2b

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// volumeBody is E2B's Volume and, with a token, VolumeAndToken.
type volumeBody struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

// mountBody is E2B's SandboxVolumeMount.
type mountBody struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

func (h *Handler) withToken(v *sandbox.Volume) volumeBody {
	return volumeBody{VolumeID: string(v.ID), Name: v.Name, Token: h.ops.Storage.VolumeToken(v.ID)}
}

func (h *Handler) createVolume(c *fiber.Ctx) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	v, err := h.ops.Storage.CreateVolume(c.UserContext(), auth.From(c), body.Name)
	if kind.Is(err, kind.Conflict) {
		return httperr.WriteAs(c, fiber.StatusBadRequest, err) // as E2B does
	}
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(h.withToken(&v))
}

func (h *Handler) listVolumes(c *fiber.Ctx) error {
	all, err := h.ops.Storage.Volumes(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	out := make([]volumeBody, len(all))
	for i, v := range all {
		out[i] = volumeBody{VolumeID: string(v.ID), Name: v.Name}
	}
	return c.JSON(out)
}

func (h *Handler) volume(c *fiber.Ctx) error {
	id, err := sandbox.ParseVolumeID(c.Params("id"))
	if err != nil {
		return err
	}
	v, err := h.ops.Storage.Volume(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(h.withToken(&v))
}

func (h *Handler) deleteVolume(c *fiber.Ctx) error {
	id, err := sandbox.ParseVolumeID(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.ops.Storage.DeleteVolume(c.UserContext(), auth.From(c), id); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// mount finds the volumes of a new sandbox, and restricts its placement to their host.
func (h *Handler) mount(c *fiber.Ctx, b *newSandbox, req *sandbox.Requested) error {
	mounts := make([]sandbox.Mount, len(b.VolumeMounts))
	for i, m := range b.VolumeMounts {
		mounts[i] = sandbox.Mount{Name: m.Name, Path: m.Path}
	}
	var err error
	if req.Volumes, req.VolumeHost, err = h.ops.Storage.Mounts(c.UserContext(), auth.From(c), mounts); err != nil {
		return err
	}
	if req.FromHost != "" && req.VolumeHost != "" && req.FromHost != req.VolumeHost {
		return kind.New(kind.Invalid, "mount volumes", "", "the volumes are on another host than the snapshot")
	}
	return nil
}

func mountsOf(st *sandbox.State) []mountBody {
	out := make([]mountBody, len(st.Request.Volumes))
	for i, m := range st.Request.Volumes {
		out[i] = mountBody{m.Name, m.Path}
	}
	return out
}
