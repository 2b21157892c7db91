package backendai

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/backendai/files"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// transfers serves the files of sessions.
type transfers struct{ h *Handler }

// register adds the routes of a session's files.
func (t transfers) register(r fiber.Router, one string) {
	r.Post(one+"/upload", t.upload)
	r.Get(one+"/download", t.download)
	r.Post(one+"/download", t.download)
	r.Get(one+"/download_single", t.downloadSingle)
	r.Post(one+"/download_single", t.downloadSingle)
	r.Get(one+"/files", t.list)
}

// upload writes the files of a form.
func (t transfers) upload(c *fiber.Ctx) error {
	p, st, err := t.h.found(c)
	if err != nil {
		return err
	}
	err = files.Upload(c.UserContext(), t.h.cfg.Files(p, st.ID), strings.Clone(c.Get(fiber.HeaderContentType)), httpconn.Body(c))
	if err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// named are the names of files that a request has in its query, in a form or in JSON.
type named struct {
	Files []string `json:"files"`
	File  string   `json:"file"`
	Path  string   `json:"path"`
}

// names returns the names in a request. A GET may have a body, too.
func names(c *fiber.Ctx) (named, error) {
	var n named
	raw, err := record.Body(c)
	if err != nil {
		return n, err
	}
	if len(raw) > 0 && json.Unmarshal(raw, &n) != nil && strings.HasPrefix(strings.TrimSpace(string(raw)), "{") {
		return n, badParams("files must be a list of strings, file and path strings")
	}
	query, err := url.ParseQuery(string(c.Request().URI().QueryString()))
	if err != nil {
		return n, badParams("the query is malformed")
	}
	if of := slices.Concat(query["files"], query["files[]"]); len(of) > 0 {
		n.Files = of
	}
	if query.Has("file") {
		n.File = query.Get("file")
	}
	if query.Has("path") {
		n.Path = query.Get("path")
	}
	return n, nil
}

// asked returns the principal of a request, the session's files, and the names in the request.
func (t transfers) asked(c *fiber.Ctx) (p core.Principal, from files.Store, n named, err error) {
	p, st, err := t.h.found(c)
	if err != nil {
		return p, nil, n, err
	}
	n, err = names(c)
	return p, t.h.cfg.Files(p, st.ID), n, err
}

// download responds with files.
func (t transfers) download(c *fiber.Ctx) error {
	p, from, n, err := t.asked(c)
	if err != nil {
		return err
	}
	var body []byte
	var mime string
	if err := t.h.withKey(c, n.Files, func() (err error) {
		body, mime, err = files.Download(c.UserContext(), from, n.Files)
		return err
	}); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, mime)
	return t.h.cfg.Streams.Answer(c, body, t.h.cfg.Streams.Budget(p.Tenant), nil)
}

// downloadSingle responds with one file.
func (t transfers) downloadSingle(c *fiber.Ctx) error {
	p, from, n, err := t.asked(c)
	if err != nil {
		return err
	}
	var body []byte
	if err := t.h.withKey(c, []string{n.File}, func() (err error) {
		body, err = files.Tar(c.UserContext(), from, n.File)
		return err
	}); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "application/x-tar")
	return t.h.cfg.Streams.Answer(c, body, t.h.cfg.Streams.Budget(p.Tenant), nil)
}

// list responds with a directory.
func (t transfers) list(c *fiber.Ctx) error {
	_, from, n, err := t.asked(c)
	if err != nil {
		return err
	}
	l, err := files.List(c.UserContext(), from, n.Path)
	if err != nil {
		return err
	}
	return c.JSON(l)
}
