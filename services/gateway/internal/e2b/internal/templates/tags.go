package templates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// Tags stores the tags of templates.
type Tags interface {
	AssignTags(ctx context.Context, p core.Principal, name string, tags []string) (catalog.Template, error)
	Tags(ctx context.Context, p core.Principal, name string) ([]catalog.Template, error)
	RemoveTags(ctx context.Context, p core.Principal, name string, tags []string) error
}

// TaggedSnapshots are the snapshots that are used as templates, by name and tag.
type TaggedSnapshots interface {
	SnapshotTags(ctx context.Context, p core.Principal, ref string) ([]sandbox.Snapshot, error)
}

// TagHandler serves the tags of templates.
type TagHandler struct {
	tags      Tags
	snapshots TaggedSnapshots
}

// NewTags returns a handler.
func NewTags(t Tags, s TaggedSnapshots) *TagHandler { return &TagHandler{t, s} }

// buildIDOf returns the build of a template; an imported template has its own id.
func buildIDOf(t *catalog.Template) string {
	if t.Built != nil {
		return t.Built.Build
	}
	return build.Format(string(t.ID))
}

// Assign serves POST /templates/tags.
func (h *TagHandler) Assign(c *fiber.Ctx) error {
	var body struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	t, err := h.tags.AssignTags(c.UserContext(), auth.From(c), body.Target, body.Tags)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(fiber.Map{"tags": body.Tags, "buildID": buildIDOf(&t)})
}

// Remove serves DELETE /templates/tags.
func (h *TagHandler) Remove(c *fiber.Ctx) error {
	var body struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	if err := h.tags.RemoveTags(c.UserContext(), auth.From(c), body.Name, body.Tags); err != nil {
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

// List serves GET /templates/:id/tags.
func (h *TagHandler) List(c *fiber.Ctx) error {
	name, err := wire.PathName(c)
	if err != nil {
		return err
	}
	all, err := h.tags.Tags(c.UserContext(), auth.From(c), name)
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
func (h *TagHandler) snapshotTags(c *fiber.Ctx, name string, none error) error {
	all, err := h.snapshots.SnapshotTags(c.UserContext(), auth.From(c), name)
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
