package e2b

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

const (
	maxForks        = 100
	maxSnapshotName = 128
)

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

func (h *Handler) snapshot(c *fiber.Ctx) error {
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
	s, err := h.ops.Snapshots.CreateSnapshot(c.UserContext(), p, id, name)
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

// snapshots lists snapshots, newest first, in pages.
func (h *Handler) snapshots(c *fiber.Ctx) error {
	limit, after, err := wire.ParsePage(c)
	if err != nil {
		return err
	}
	if err := h.ops.Core.Sync(c.UserContext()); err != nil {
		return err
	}
	p, of := auth.From(c), c.Query("sandboxID")
	name, his := p.OwnedName(c.Query("name"))
	found := h.ops.Snapshots.List(p, func(s *sandbox.Snapshot) bool {
		return his && (of == "" || of == string(s.Sandbox)) && (name == "" || called(s, name))
	})
	if name != "" { // a name identifies one snapshot, the newest of its tags
		found = found[:min(len(found), 1)]
	}
	found = wire.Cut(c, found, limit, after, func(s *sandbox.Snapshot) wire.Cursor { return wire.Cursor{Time: s.Taken.UnixNano(), ID: string(s.ID)} })
	out := make([]snapshotBody, len(found))
	for i := range found {
		out[i] = snapshotOf(&found[i])
	}
	return c.JSON(out)
}

// forkBody is one result of a fork: a sandbox or an error, and for a sandbox whether the
// processes of the original continue in it.
type forkBody struct {
	Sandbox *sandboxBody  `json:"sandbox,omitempty"`
	Memory  *bool         `json:"memory,omitempty"`
	Error   *httperr.Body `json:"error,omitempty"`
}

func (h *Handler) fork(c *fiber.Ctx) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	timeout, err := h.lifetime(body.Timeout, defaultsV1.timeout)
	if err != nil {
		return err
	}
	count := 1
	if body.Count != nil {
		count = *body.Count
	}
	if count < 1 || count > maxForks {
		return wire.Invalid("count must be between 1 and %d", maxForks)
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	forks, memory, err := h.ops.Provisioner.ForkSandbox(c.UserContext(), auth.From(c), id, count, timeout)
	if err != nil {
		return err
	}
	out := make([]forkBody, len(forks))
	for i := range forks {
		if err := forks[i].Err; err != nil {
			b := httperr.Of(err)
			out[i].Error = &b
			continue
		}
		b := h.sandbox(&forks[i].State)
		out[i].Sandbox, out[i].Memory = &b, &memory
	}
	return c.Status(fiber.StatusCreated).JSON(out)
}
