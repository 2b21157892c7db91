package e2b

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// buildIDOf returns the build of a template; an imported template has its own id.
func buildIDOf(t *events.Template) string {
	if t.Built != nil {
		return t.Built.Build
	}
	return build.Format(string(t.ID))
}

func (h *Handler) assignTags(c *fiber.Ctx) error {
	var body struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	t, err := h.ops.Templates.AssignTags(c.UserContext(), auth.From(c), body.Target, body.Tags)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(fiber.Map{"tags": body.Tags, "buildID": buildIDOf(&t)})
}

func (h *Handler) removeTags(c *fiber.Ctx) error {
	var body struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	if err := h.ops.Templates.RemoveTags(c.UserContext(), auth.From(c), body.Name, body.Tags); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// tagBody is E2B's TemplateTag.
type tagBody struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (h *Handler) tags(c *fiber.Ctx) error {
	name, err := wire.PathName(c)
	if err != nil {
		return err
	}
	all, err := h.ops.Templates.Tags(c.UserContext(), auth.From(c), name)
	if kind.Is(err, kind.NotFound) {
		return h.snapshotTags(c, name, err)
	}
	if err != nil {
		return err
	}
	out := make([]tagBody, len(all))
	for i := range all {
		out[i] = tagBody{Tag: all[i].Tag, BuildID: buildIDOf(&all[i]), CreatedAt: all[i].Tagged.UTC()}
	}
	return c.JSON(out)
}

// snapshotTags responds with the tags of a snapshot, which can be used as a template, or
// returns none if there is no such snapshot.
func (h *Handler) snapshotTags(c *fiber.Ctx, name string, none error) error {
	all, err := h.ops.Snapshots.SnapshotTags(c.UserContext(), auth.From(c), name)
	switch {
	case kind.Is(err, kind.NotFound):
		return none
	case err != nil:
		return err
	}
	out := make([]tagBody, len(all))
	for i := range all {
		_, tag, _ := strings.Cut(core.Tagged(all[i].Name), ":")
		out[i] = tagBody{Tag: tag, BuildID: snapshotBuildID(&all[i]), CreatedAt: all[i].Taken.UTC()}
	}
	return c.JSON(out)
}

// snapshotBuildID returns a build id for a snapshot, which no build created.
func snapshotBuildID(s *sandbox.Snapshot) string {
	sum := sha256.Sum256([]byte(s.ID))
	return build.Format(hex.EncodeToString(sum[:]))
}

// deleteTemplate deletes a template with all its tags, or a snapshot: clients delete a
// snapshot as the template that it can be used as.
func (h *Handler) deleteTemplate(c *fiber.Ctx) error {
	name, err := wire.PathName(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	if err = h.ops.Templates.DeleteTemplate(c.UserContext(), p, name); kind.Is(err, kind.NotFound) {
		if serr := h.ops.Snapshots.DeleteSnapshot(c.UserContext(), p, name); !kind.Is(serr, kind.NotFound) {
			err = serr
		}
	}
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

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

func buildBodyOf(b *events.Build) buildBody {
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

// template returns a template with its builds, newest first, in pages.
func (h *Handler) template(c *fiber.Ctx) error {
	ref, err := wire.PathName(c)
	if err != nil {
		return err
	}
	limit, after, err := wire.ParsePage(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	name, err := h.ops.Templates.OwnName(c.UserContext(), p, ref)
	if err != nil {
		return err
	}
	out := fiber.Map{"public": h.ops.Templates.BuiltPublic(p, name)}
	builds := []buildBody{}
	for _, b := range h.ops.Builds.List(p, func(b *events.Build) bool { return name == b.Request.Name }) {
		builds = append(builds, buildBodyOf(&b))
		out["templateID"], out["createdAt"] = b.Request.Template, b.Created.UTC()
		out["names"], out["aliases"] = []string{b.Request.Name}, []string{b.Request.Name}
	}
	t, err := h.ops.Templates.Template(c.UserContext(), p, name)
	if err != nil { // it may have no tag except for the requested one
		t, err = h.ops.Templates.Template(c.UserContext(), p, ref)
	}
	switch {
	case err == nil:
		out["templateID"], out["updatedAt"], out["public"] = string(t.ID), t.Tagged.UTC(), h.ops.Templates.Public(&t)
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
	out["builds"] = wire.Cut(c, builds, limit, after, func(b *buildBody) wire.Cursor { return wire.Cursor{Time: b.CreatedAt.UnixNano(), ID: b.BuildID} })
	return c.JSON(out)
}

// updateTemplate sets whether a template is public.
func (h *Handler) updateTemplate(c *fiber.Ctx) error {
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
		name, err = h.ops.Templates.Publish(c.UserContext(), p, name, *body.Public)
	} else {
		name, err = h.ops.Templates.OwnName(c.UserContext(), p, name)
	}
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"names": []string{name}})
}
