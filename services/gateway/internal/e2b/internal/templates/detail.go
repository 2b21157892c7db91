package templates

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/paging"
)

// buildBody is E2B's TemplateBuild.
type buildBody struct {
	BuildID     string     `json:"buildID"`
	Status      string     `json:"status"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	FinishedAt  *time.Time `json:"finishedAt,omitempty"`
	CPUCount    uint32     `json:"cpuCount"`
	MemoryMB    uint32     `json:"memoryMB"`
	EnvdVersion string     `json:"envdVersion"`
}

func buildBodyOf(b *catalog.Build) buildBody {
	out := buildBody{
		BuildID: string(b.ID), Status: string(b.Phase), CreatedAt: b.Created.UTC(), UpdatedAt: b.Changed.UTC(),
		CPUCount: (b.Request.CPUMilli + 999) / 1000, MemoryMB: b.Request.MemoryMiB, EnvdVersion: wire.EnvdVersion,
	}
	if b.Over() {
		at := b.Ended.UTC()
		out.FinishedAt = &at
	}
	return out
}

// Get returns a template with its builds, newest first, in pages.
func (h *Handler) Get(c *fiber.Ctx) error {
	ref, err := wire.PathName(c)
	if err != nil {
		return err
	}
	limit, after, err := paging.Parse(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	name, err := h.templates.OwnName(c.UserContext(), p, ref)
	if err != nil {
		return err
	}
	out := fiber.Map{"public": h.templates.BuiltPublic(p, name)}
	builds := []buildBody{}
	for _, b := range h.builds.List(p, func(b *catalog.Build) bool { return name == b.Request.Name }) {
		builds = append(builds, buildBodyOf(&b))
		out["templateID"], out["createdAt"] = b.Request.Template, b.Created.UTC()
		out["names"], out["aliases"] = []string{b.Request.Name}, []string{b.Request.Name}
	}
	t, err := h.templates.Template(c.UserContext(), p, name)
	if err != nil { // it may have no tag except for the requested one
		t, err = h.templates.Template(c.UserContext(), p, ref)
	}
	switch {
	case err == nil:
		out["templateID"], out["updatedAt"], out["public"] = string(t.ID), t.Tagged.UTC(), h.templates.Public(&t)
		out["names"], out["aliases"] = []string{t.Name}, []string{t.Name}
		if len(builds) == 0 {
			out["createdAt"] = t.Tagged.UTC()
			builds = append(builds, buildBody{
				BuildID: buildIDOf(&t), Status: string(build.PhaseReady), CreatedAt: t.Tagged.UTC(), UpdatedAt: t.Tagged.UTC(), EnvdVersion: wire.EnvdVersion,
			})
		}
	case len(builds) == 0:
		return err
	default:
		out["updatedAt"] = builds[0].UpdatedAt
	}
	if id, ok := out["templateID"].(string); ok {
		of := h.spawned(p)[id]
		out["lastSpawnedAt"], out["spawnCount"] = of.last, of.count
	}
	out["builds"] = paging.Cut(c, builds, limit, after, func(b *buildBody) paging.Cursor { return paging.Cursor{Time: b.CreatedAt.UnixNano(), ID: b.BuildID} })
	return c.JSON(out)
}

// Update sets whether a template is public.
func (h *Handler) Update(c *fiber.Ctx) error {
	var body struct {
		Public *bool `json:"public"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	name, err := wire.PathName(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	if body.Public != nil {
		name, err = h.templates.Publish(c.UserContext(), p, name, *body.Public)
	} else {
		name, err = h.templates.OwnName(c.UserContext(), p, name)
	}
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"names": []string{name}})
}

// Delete deletes a template with all its tags, or a snapshot: clients delete a
// snapshot as the template that it can be used as.
func (h *Handler) Delete(c *fiber.Ctx) error {
	name, err := wire.PathName(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	if err = h.templates.DeleteTemplate(c.UserContext(), p, name); kind.Is(err, kind.NotFound) {
		if serr := h.snapshots.DeleteSnapshot(c.UserContext(), p, name); !kind.Is(serr, kind.NotFound) {
			err = serr
		}
	}
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
