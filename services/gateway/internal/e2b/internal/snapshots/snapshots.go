package snapshots

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/paging"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Snapshots stores snapshots.
type Snapshots interface {
	CreateSnapshot(ctx context.Context, p core.Principal, id sandbox.ID, name string) (sandbox.Snapshot, error)
	List(p core.Principal, keep func(*sandbox.Snapshot) bool) []sandbox.Snapshot
}

// View is what the gateway has read of the log.
type View interface {
	Sync(ctx context.Context) error
}

// Handler serves snapshots.
type Handler struct {
	snapshots Snapshots
	view      View
}

// New returns a handler.
func New(s Snapshots, v View) *Handler { return &Handler{s, v} }

// maxSnapshotName is the maximum length of a name with its tag, in bytes.
const maxSnapshotName = 128

// snapshotBody is E2B's SnapshotInfo, and Memory. Its id is valid as a templateID.
type snapshotBody struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
	Memory     bool     `json:"memory"` // includes the processes
}

func snapshotOf(s *sandbox.Snapshot) snapshotBody {
	if s.Name == "" {
		return snapshotBody{SnapshotID: string(s.ID) + ":" + core.DefaultTag, Names: []string{}, Memory: s.Memory}
	}
	id := core.Tagged(s.Name) // shared by the next snapshot of that name
	name, _, _ := strings.Cut(id, ":")
	return snapshotBody{SnapshotID: id, Names: []string{name}, Memory: s.Memory}
}

// Create serves POST /sandboxes/:id/snapshots.
func (h *Handler) Create(c *fiber.Ctx) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	p := auth.From(c)
	name, err := p.NewName(body.Name)
	if err != nil {
		return err
	}
	if !validName(name) {
		return wire.Invalid("name must be NAME or NAME:TAG of letters, digits, - and _, at most %d in all", maxSnapshotName)
	}
	if own, _, _ := strings.Cut(name, ":"); own != "" && template.IsHost(own) {
		return wire.Invalid("the name '%s' is reserved for the host's own files", own)
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	s, err := h.snapshots.CreateSnapshot(c.UserContext(), p, id, name)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(snapshotOf(&s))
}

// called reports whether name identifies s: by its id or its name, with any tag unless
// name has one.
func called(s *sandbox.Snapshot, name string) bool {
	name, tag, tagged := strings.Cut(name, ":")
	own, ownTag, _ := strings.Cut(core.Tagged(s.Name), ":")
	if name == string(s.ID) {
		own, ownTag = name, core.DefaultTag
	}
	return name != "" && name == own && (!tagged || tag == ownTag)
}

// validName reports whether s is a valid name of a snapshot. Empty is not, nor is a valid
// snapshot id.
func validName(s string) bool {
	name, tag, tagged := strings.Cut(s, ":")
	_, err := sandbox.ParseSnapshotID(name)
	return s == "" || err != nil && len(s) <= maxSnapshotName && wire.IsWord(name) && (!tagged || wire.IsWord(tag))
}

// List lists snapshots, newest first, in pages.
func (h *Handler) List(c *fiber.Ctx) error {
	limit, after, err := paging.Parse(c)
	if err != nil {
		return err
	}
	if err := h.view.Sync(c.UserContext()); err != nil {
		return err
	}
	p, of := auth.From(c), c.Query("sandboxID")
	name, his := p.OwnedName(c.Query("name"))
	found := h.snapshots.List(p, func(s *sandbox.Snapshot) bool {
		return his && (of == "" || of == string(s.Sandbox)) && (name == "" || called(s, name))
	})
	if name != "" { // a name identifies one snapshot, the newest of its tags
		found = found[:min(len(found), 1)]
	}
	found = paging.Cut(c, found, limit, after, func(s *sandbox.Snapshot) paging.Cursor {
		return paging.Cursor{Time: s.Taken.UnixNano(), ID: string(s.ID)}
	})
	out := make([]snapshotBody, len(found))
	for i := range found {
		out[i] = snapshotOf(&found[i])
	}
	return c.JSON(out)
}
