package files

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// VolumeCore is the part of the gateway's operations that Volumes uses.
type VolumeCore interface {
	OpenVolumeFiles(ctx context.Context, p core.Principal, id sandbox.VolumeID, req *file.Request) (*core.Files, error)
}

// Volumes serves the files of volumes with the requests of E2B's SDKs: paths are relative to
// the volume's root, owners are numbers, and an error's code is a name. Files are streamed as
// those of sandboxes are.
type Volumes struct {
	core    VolumeCore
	streams *stream.Streams
}

// NewVolumes returns the surface.
func NewVolumes(c VolumeCore, streams *stream.Streams) *Volumes { return &Volumes{c, streams} }

// Register adds the routes. The principal must be set before (auth.From), and the server
// must leave the body of a PUT of a file unread.
func (h *Volumes) Register(r fiber.Router) {
	const at = "/volumecontent/:id"
	r.Get(at+"/path", asNamed(h.stat))
	r.Patch(at+"/path", asNamed(h.change))
	r.Delete(at+"/path", asNamed(h.remove))
	r.Get(at+"/dir", asNamed(h.list))
	r.Post(at+"/dir", asNamed(h.makeDir))
	r.Get(at+"/file", asNamed(h.read))
	r.Put(at+"/file", asNamed(h.write))
}

// asNamed returns a route's error in the form that clients of volumes expect.
func asNamed(do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := do(c)
		if err == nil {
			return nil
		}
		status := httperr.Of(err).Code
		switch kind.Of(err) {
		case kind.Exhausted:
			status = http.StatusInsufficientStorage
		case kind.Precondition:
			status = http.StatusBadRequest
		}
		return httperr.WriteNamed(c, status, err)
	}
}

// entryStat is E2B's VolumeEntryStat.
type entryStat struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Atime  time.Time `json:"atime"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func entryStatOf(e *pb.EntryInfo) entryStat {
	uid, _ := strconv.ParseUint(e.GetOwner(), 10, 32)
	gid, _ := strconv.ParseUint(e.GetGroup(), 10, 32)
	s := entryStat{
		Name: e.GetName(), Type: "unknown", Path: e.GetPath(), Size: e.GetSize(), Mode: e.GetMode(),
		UID: uint32(uid), GID: uint32(gid), Target: e.GetSymlinkTarget(),
		Atime: e.GetAccessedTime().AsTime(), Mtime: e.GetModifiedTime().AsTime(), Ctime: e.GetChangedTime().AsTime(),
	}
	switch {
	case e.SymlinkTarget != nil:
		s.Type = "symlink"
	case e.GetType() == pb.FileType_FILE_TYPE_FILE:
		s.Type = "file"
	case e.GetType() == pb.FileType_FILE_TYPE_DIRECTORY:
		s.Type = "directory"
	}
	return s
}

// parseRequest returns the volume and the file request of a route.
func parseRequest(c *fiber.Ctx, op file.Op) (sandbox.VolumeID, *file.Request, error) {
	id, err := sandbox.ParseVolumeID(c.Params("id"))
	if err != nil {
		return "", nil, err
	}
	req := &file.Request{Op: op, Path: strings.Clone(c.Query("path"))}
	if req.Path == "" {
		return "", nil, invalid("path is required")
	}
	return id, req, req.Check()
}

// parseOwner reads the owner, the group and the mode from the query, and the value of force and
// whether it is set.
func parseOwner(c *fiber.Ctx, req *file.Request) (force, given bool, err error) {
	ids := [2]int{file.Keep, file.Keep}
	for i, name := range [...]string{"uid", "gid"} {
		if s := c.Query(name); s != "" {
			if ids[i], err = strconv.Atoi(s); err != nil || ids[i] < 0 {
				return false, false, invalid("%s must be a number", name)
			}
		}
	}
	if s := c.Query("mode"); s != "" {
		mode, err := strconv.ParseUint(s, 10, 32)
		if err != nil || mode > maxMode {
			return false, false, invalid("mode must be a number up to %d", maxMode)
		}
		req.Mode = uint32(mode)
	}
	if req.User = file.Owner(ids[0], ids[1]); c.Query("force") != "" {
		if force, err = strconv.ParseBool(c.Query("force")); err != nil {
			return false, false, invalid("force must be true or false")
		}
		given = true
	}
	_, _, err = file.ParseOwner(req.User)
	return force, given, err
}

const maxMode = 0o777

// entry sends a request that returns one entry.
func (h *Volumes) entry(c *fiber.Ctx, id sandbox.VolumeID, req *file.Request) (*pb.EntryInfo, error) {
	ctx, cancel := context.WithTimeout(c.UserContext(), core.FilesTimeout)
	defer cancel()
	f, err := h.core.OpenVolumeFiles(ctx, auth.From(c), id, req)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return only(f)
}

func (h *Volumes) stat(c *fiber.Ctx) error {
	id, req, err := parseRequest(c, file.OpStat)
	if err != nil {
		return err
	}
	return h.respondEntry(c, http.StatusOK, id, req)
}

// respondEntry sends a request that returns one entry, and responds with that.
func (h *Volumes) respondEntry(c *fiber.Ctx, status int, id sandbox.VolumeID, req *file.Request) error {
	e, err := h.entry(c, id, req)
	if err != nil {
		return err
	}
	return c.Status(status).JSON(entryStatOf(e))
}

func (h *Volumes) change(c *fiber.Ctx) error {
	var body struct {
		UID  *int    `json:"uid"`
		GID  *int    `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	id, req, err := parseRequest(c, file.OpChange)
	if err != nil {
		return err
	}
	if err := decodeJSON(c.Request().Body(), &body); err != nil {
		return err
	}
	ids := [2]int{file.Keep, file.Keep}
	for i, n := range [...]*int{body.UID, body.GID} {
		if n == nil {
			continue
		}
		if ids[i] = *n; *n < 0 {
			return invalid("uid and gid cannot be negative")
		}
	}
	if body.Mode != nil {
		if req.Mode = *body.Mode; req.Mode < 1 || req.Mode > maxMode {
			return invalid("mode must be 1 to %d", maxMode)
		}
	}
	req.User = file.Owner(ids[0], ids[1])
	if _, _, err := file.ParseOwner(req.User); err != nil {
		return err
	}
	return h.respondEntry(c, http.StatusOK, id, req)
}

// makeDir creates a directory; with force also its parents, and an existing one is no
// error.
func (h *Volumes) makeDir(c *fiber.Ctx) error {
	id, req, err := parseRequest(c, file.OpMakeDir)
	if err != nil {
		return err
	}
	if req.Force, _, err = parseOwner(c, req); err != nil {
		return err
	}
	if !req.Force {
		above := &file.Request{Op: file.OpStat, Path: path.Dir(path.Clean("/" + req.Path))}
		if _, err := h.entry(c, id, above); err != nil {
			return err
		}
	}
	return h.respondEntry(c, http.StatusCreated, id, req)
}

func (h *Volumes) remove(c *fiber.Ctx) error {
	id, req, err := parseRequest(c, file.OpStat)
	if err != nil {
		return err
	}
	if _, err := h.entry(c, id, req); err != nil { // unlike the host, this route fails if nothing exists
		return err
	}
	req.Op = file.OpRemove
	ctx, cancel := context.WithTimeout(c.UserContext(), core.FilesTimeout)
	defer cancel()
	f, err := h.core.OpenVolumeFiles(ctx, auth.From(c), id, req)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Done(); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

const (
	maxListing = 32 << 20 // bytes of entries
	maxDepth   = 1 << 16
)

func (h *Volumes) list(c *fiber.Ctx) error {
	id, req, err := parseRequest(c, file.OpList)
	if err != nil {
		return err
	}
	if s := c.Query("depth"); s != "" {
		depth, err := strconv.ParseUint(s, 10, 32)
		if err != nil || depth < 1 || depth > maxDepth {
			return invalid("depth must be 1 to %d", maxDepth)
		}
		req.Depth = uint32(depth)
	}
	ctx, cancel := context.WithTimeout(c.UserContext(), core.FilesTimeout)
	defer cancel()
	f, err := h.core.OpenVolumeFiles(ctx, auth.From(c), id, req)
	if err != nil {
		return err
	}
	defer f.Close()
	budget := h.streams.Budget(auth.From(c).Tenant)
	defer budget.Shrink(0)
	out := []entryStat{}
	for size := 0; ; {
		raw, err := f.Entry()
		if errors.Is(err, io.EOF) {
			return c.JSON(out)
		}
		if err != nil {
			return err
		}
		if size += len(raw); size > maxListing {
			return kind.Newf(kind.Invalid, "list", "", "more than %d entries in the directory: request less depth", len(out))
		}
		if !budget.Grow(2 * size) { // parsed entries are larger
			return stream.ErrOverBudget
		}
		var e pb.EntryInfo
		if err := proto.Unmarshal(raw, &e); err != nil {
			return kind.Wrap(kind.Internal, "read answer", "", err)
		}
		out = append(out, entryStatOf(&e))
	}
}

func (h *Volumes) read(c *fiber.Ctx) error {
	id, req, err := parseRequest(c, file.OpRead)
	if err != nil {
		return err
	}
	principal := auth.From(c)
	return Send(c, h.streams, "", func(ctx context.Context) (*core.Files, error) { return h.core.OpenVolumeFiles(ctx, principal, id, req) })
}

// write stores a file. An existing one is replaced, unless force is set to false.
func (h *Volumes) write(c *fiber.Ctx) error {
	id, req, err := parseRequest(c, file.OpWrite)
	if err != nil {
		return err
	}
	force, given, err := parseOwner(c, req)
	if err != nil {
		return err
	}
	req.Fresh = given && !force
	content, err := DecodeBody(c.Get(fiber.HeaderContentEncoding), httpconn.Body(c))
	if err != nil {
		return err
	}
	f, err := h.core.OpenVolumeFiles(c.UserContext(), auth.From(c), id, req)
	if err != nil {
		return err
	}
	defer f.Close()
	e, err := Fill(f, content)
	if err != nil {
		return err
	}
	return c.Status(http.StatusCreated).JSON(entryStatOf(e))
}
