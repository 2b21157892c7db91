package sandboxes

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
)

// mountBody is E2B's SandboxVolumeMount.
type mountBody struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// mount finds the volumes of a new sandbox, and restricts its placement to their host.
func (cr *creator) mount(c *fiber.Ctx, b *newSandbox, req *sandbox.Requested) error {
	mounts := make([]sandbox.Mount, len(b.VolumeMounts))
	for i, m := range b.VolumeMounts {
		mounts[i] = sandbox.Mount{Name: m.Name, Path: m.Path}
	}
	var err error
	if req.Volumes, req.VolumeHost, err = cr.volumes.Mounts(c.UserContext(), auth.From(c), mounts); err != nil {
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
