package templates

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/paging"
	"github.com/millrace/millrace/services/gateway/internal/templatestore"
)

// Templates stores templates.
type Templates interface {
	List(p core.Principal) []catalog.Template
	Template(ctx context.Context, p core.Principal, name string) (catalog.Template, error)
	OwnName(ctx context.Context, p core.Principal, tmpl string) (string, error)
	Public(t *catalog.Template) bool
	BuiltPublic(p core.Principal, name string) bool
	Publish(ctx context.Context, p core.Principal, name string, public bool) (string, error)
	DeleteTemplate(ctx context.Context, p core.Principal, name string) error
}

// Builds lists builds.
type Builds interface {
	List(p core.Principal, keep func(*catalog.Build) bool) []catalog.Build
}

// Sandboxes lists sandboxes.
type Sandboxes interface {
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
}

// Snapshots deletes snapshots.
type Snapshots interface {
	DeleteSnapshot(ctx context.Context, p core.Principal, ref string) error
}

// View is what the gateway has read of the log.
type View interface {
	Sync(ctx context.Context) error
}

// Config configures a [Handler]. All fields are required.
type Config struct {
	Templates Templates
	Builds    Builds
	Sandboxes Sandboxes
	Snapshots Snapshots
	View      View
}

// Handler serves templates.
type Handler struct {
	templates Templates
	builds    Builds
	sandboxes Sandboxes
	snapshots Snapshots
	view      View
}

// New returns a handler.
func New(cfg Config) *Handler {
	return &Handler{cfg.Templates, cfg.Builds, cfg.Sandboxes, cfg.Snapshots, cfg.View}
}

// templateBody is E2B's Template.
type templateBody struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	CPUCount      uint32     `json:"cpuCount"`
	MemoryMB      uint32     `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Aliases       []string   `json:"aliases"`
	Names         []string   `json:"names"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *string    `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	BuildCount    int32      `json:"buildCount"`
	EnvdVersion   string     `json:"envdVersion"`
	BuildStatus   string     `json:"buildStatus"`
}

// List lists each template once, with all its names.
func (h *Handler) List(c *fiber.Ctx) error {
	all, err := h.all(c)
	if err != nil {
		return err
	}
	return c.JSON(all)
}

// Page is List in pages, newest first.
func (h *Handler) Page(c *fiber.Ctx) error {
	limit, after, err := paging.Parse(c)
	if err != nil {
		return err
	}
	all, err := h.all(c)
	if err != nil {
		return err
	}
	at := func(t *templateBody) paging.Cursor {
		return paging.Cursor{Time: t.CreatedAt.UnixNano(), ID: t.TemplateID}
	}
	slices.SortFunc(all, func(a, b templateBody) int { return paging.Newest(at(&a), at(&b)) })
	return c.JSON(paging.Cut(c, all, limit, after, at))
}

// all returns the templates that the principal may use; Invalid if the query names
// another team.
func (h *Handler) all(c *fiber.Ctx) ([]templateBody, error) {
	p := auth.From(c)
	if err := wire.OwnTeam(p, c.Query("teamID")); err != nil {
		return nil, err
	}
	if err := h.view.Sync(c.UserContext()); err != nil {
		return nil, err
	}
	out := []templateBody{}
	at := map[template.ID]int{}
	for _, t := range h.templates.List(p) {
		i, ok := at[t.ID]
		if !ok {
			i = len(out)
			at[t.ID] = i
			out = append(out, bodyOf(&t, h.templates.Public(&t)))
		}
		name := templatestore.TemplateName(&t)
		if t.Built != nil {
			name = t.Name // its tags have their own request
			if slices.Contains(out[i].Names, name) {
				continue
			}
		}
		out[i].Aliases = append(out[i].Aliases, name)
		out[i].Names = append(out[i].Names, name)
	}
	builds := map[string]int32{}
	h.builds.List(p, func(b *catalog.Build) bool { builds[b.Request.Template]++; return false })
	spawned := h.spawned(p)
	for i := range out {
		t := &out[i]
		t.BuildCount = max(1, builds[t.TemplateID])
		t.SpawnCount, t.LastSpawnedAt = spawned[t.TemplateID].count, spawned[t.TemplateID].last
	}
	return out, nil
}

// spawns counts the sandboxes that were created from a template, as far as the log retains
// them.
type spawns struct {
	count int64
	last  *time.Time // nil: none
}

// spawned returns the principal's spawns by template id, without those of builds.
func (h *Handler) spawned(p core.Principal) map[string]spawns {
	out := map[string]spawns{}
	h.sandboxes.Sandboxes(p, func(s *sandbox.State) bool {
		if s.Started.IsZero() || s.Request.Build != "" {
			return false
		}
		of, at := out[wire.TemplateID(s)], s.Started.UTC()
		if of.count++; of.last == nil || of.last.Before(at) {
			of.last = &at
		}
		out[wire.TemplateID(s)] = of
		return false
	})
	return out
}

func bodyOf(t *catalog.Template, public bool) templateBody {
	if b := t.Built; b != nil {
		return templateBody{
			TemplateID: string(t.ID), BuildID: b.Build, CPUCount: (b.CPUMilli + 999) / 1000, MemoryMB: b.MemoryMiB, Public: public,
			CreatedAt: t.Tagged.UTC(), UpdatedAt: t.Tagged.UTC(), BuildCount: 1, EnvdVersion: wire.EnvdVersion, BuildStatus: "ready",
		}
	}
	return templateBody{
		TemplateID: string(t.ID), BuildID: buildIDOf(t), DiskSizeMB: (t.Manifest.Size + 1<<20 - 1) >> 20, Public: public,
		CreatedAt: t.Tagged.UTC(), UpdatedAt: t.Tagged.UTC(), BuildCount: 1, EnvdVersion: wire.EnvdVersion, BuildStatus: "ready",
	}
}

// Alias reports whether there is a template of that name.
func (h *Handler) Alias(c *fiber.Ctx) error {
	alias, err := url.PathUnescape(c.Params("alias"))
	if err != nil {
		return kind.New(kind.NotFound, "find template", "", "template not found")
	}
	p := auth.From(c)
	if own, ok := p.OwnedName(alias); ok && template.IsHost(own) {
		return c.JSON(fiber.Map{"templateID": own, "public": true})
	}
	t, err := h.templates.Template(c.UserContext(), p, alias)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"templateID": string(t.ID), "public": h.templates.Public(&t)})
}
