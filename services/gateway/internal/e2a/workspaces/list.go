package workspaces

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// listed is a workspace in a list.
type listed struct {
	App  string `json:"app_id"`
	Set  string `json:"capset_id"`
	Size int64  `json:"size_bytes"`
}

// all serves GET /v1/workspaces.
func (h *Handler) all(c *fiber.Ctx) error {
	all, err := h.store.Workspaces(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	out := make([]listed, len(all))
	for i := range all {
		out[i] = listed{all[i].Scope.App, all[i].Scope.Set, all[i].Bytes}
	}
	return body.Write(c, fiber.StatusOK, struct {
		Workspaces []listed `json:"workspaces"`
	}{out})
}

// entry is a file in a list.
type entry struct {
	Path     workspace.Path `json:"path"`
	Size     int64          `json:"size"`
	Modified string         `json:"modified"`
}

// page is a page of files.
type page struct {
	Files []entry `json:"files"`
	Next  string  `json:"next_token,omitempty"`
}

// Numbers of files of a page.
const (
	defaultPage = 20
	maxPage     = 1000
)

// list serves GET of a workspace: a page of its files. A workspace without files does not exist, and has
// an empty list: a client may list it before it uploads the first one.
func (h *Handler) list(c *fiber.Ctx) error {
	of, err := scopeOf(c)
	if err != nil {
		return err
	}
	limit, after, err := paging(c)
	if err != nil {
		return err
	}
	p, err := h.store.List(c.UserContext(), of, strings.Clone(c.Query("prefix")), after, limit)
	if err != nil {
		return err
	}
	out := page{Files: make([]entry, len(p.Files))}
	for i := range p.Files {
		f := &p.Files[i]
		out.Files[i] = entry{f.Path, f.Size, f.Modified.UTC().Truncate(time.Second).Format(time.RFC3339)}
	}
	if p.More {
		out.Next = base64.RawURLEncoding.EncodeToString([]byte(p.Files[len(p.Files)-1].Path))
	}
	return body.Write(c, fiber.StatusOK, out)
}

// paging returns the size of the requested page, and the last file of the page before.
func paging(c *fiber.Ctx) (limit int, after workspace.Path, err error) {
	limit = defaultPage
	if s := c.Query("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > maxPage {
			return 0, "", kind.Newf(kind.Invalid, "decode", "", "limit must be from 1 to %d", maxPage)
		}
	}
	if s := c.Query("token"); s != "" {
		raw, err := base64.RawURLEncoding.DecodeString(s)
		if err == nil {
			after, err = workspace.ParsePath(string(raw))
		}
		if err != nil {
			return 0, "", body.Invalid("token is invalid")
		}
	}
	return limit, after, nil
}

const mib = 1 << 20

// usage serves GET of the size of a workspace. One without files is empty.
func (h *Handler) usage(c *fiber.Ctx) error {
	of, err := scopeOf(c)
	if err != nil {
		return err
	}
	u, err := h.store.Usage(c.UserContext(), of)
	if err != nil && !kind.Is(err, kind.NotFound) {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Size  float64 `json:"total_size_mib"`
		Files int     `json:"file_count"`
	}{float64(u.Bytes) / mib, u.Files})
}

// removeAll serves DELETE of a workspace.
func (h *Handler) removeAll(c *fiber.Ctx) error {
	of, err := scopeOf(c)
	if err == nil {
		err = h.store.RemoveAll(c.UserContext(), of)
	}
	return deleted(c, err)
}

// deleted responds to a DELETE.
func deleted(c *fiber.Ctx, err error) error {
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, body.Status{Status: "deleted"})
}
