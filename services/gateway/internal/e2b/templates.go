package e2b

import (
	"net/url"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// templateBody is Template.
type templateBody struct {
	TemplateID    string    `json:"templateID"`
	BuildID       string    `json:"buildID"`
	CPUCount      uint32    `json:"cpuCount"`
	MemoryMB      uint32    `json:"memoryMB"`
	DiskSizeMB    int64     `json:"diskSizeMB"`
	Public        bool      `json:"public"`
	Aliases       []string  `json:"aliases"`
	Names         []string  `json:"names"`
	CreatedAt     time.Time `json:"createdAt"`
	UpdatedAt     time.Time `json:"updatedAt"`
	CreatedBy     *string   `json:"createdBy"`
	LastSpawnedAt *string   `json:"lastSpawnedAt"`
	SpawnCount    int64     `json:"spawnCount"`
	BuildCount    int32     `json:"buildCount"`
	EnvdVersion   string    `json:"envdVersion"`
	BuildStatus   string    `json:"buildStatus"`
}

// listTemplates gives each template once, with all of its names.
func (h *Handler) listTemplates(c *fiber.Ctx) error {
	if err := h.core.Sync(c.UserContext()); err != nil {
		return err
	}
	p := auth.From(c)
	out := []templateBody{}
	at := map[template.ID]int{}
	for _, t := range h.core.Templates(p) {
		i, ok := at[t.ID]
		if !ok {
			i = len(out)
			at[t.ID] = i
			out = append(out, bodyOf(&t, h.core.Public(&t)))
		}
		name := core.TemplateName(&t)
		if t.Built != nil {
			name = t.Name // its tags are told by their own request
			if slices.Contains(out[i].Names, name) {
				continue
			}
		}
		out[i].Aliases = append(out[i].Aliases, name)
		out[i].Names = append(out[i].Names, name)
	}
	builds := map[string]int32{}
	h.core.Builds(p, func(b *events.Build) bool { builds[b.Request.Template]++; return false })
	for i := range out {
		out[i].BuildCount = max(1, builds[out[i].TemplateID])
	}
	return c.JSON(out)
}

func bodyOf(t *events.Template, public bool) templateBody {
	if b := t.Built; b != nil {
		return templateBody{
			TemplateID: string(t.ID), BuildID: b.Build, CPUCount: (b.CPUMilli + 999) / 1000, MemoryMB: b.MemoryMiB, Public: public,
			CreatedAt: t.Tagged.UTC(), UpdatedAt: t.Tagged.UTC(), BuildCount: 1, EnvdVersion: envdVersion, BuildStatus: "ready",
		}
	}
	return templateBody{
		TemplateID: string(t.ID), BuildID: buildIDOf(t), DiskSizeMB: (t.Manifest.Size + 1<<20 - 1) >> 20, Public: public,
		CreatedAt: t.Tagged.UTC(), UpdatedAt: t.Tagged.UTC(), BuildCount: 1, EnvdVersion: envdVersion, BuildStatus: "ready",
	}
}

// templateAlias tells whether there is a template of that name.
func (h *Handler) templateAlias(c *fiber.Ctx) error {
	alias, err := url.PathUnescape(c.Params("alias"))
	if err != nil {
		return kind.New(kind.NotFound, "find template", "", "template not found")
	}
	p := auth.From(c)
	if own, ok := p.OwnedName(alias); ok && template.IsHost(own) {
		return c.JSON(fiber.Map{"templateID": own, "public": true})
	}
	t, err := h.core.Template(c.UserContext(), p, alias)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"templateID": string(t.ID), "public": h.core.Public(&t)})
}
