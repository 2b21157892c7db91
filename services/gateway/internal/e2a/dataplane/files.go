package dataplane

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/files"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// checkPath checks the path of a file, whose percent encoding has been removed once.
func checkPath(p string) error {
	switch {
	case p == "":
		return body.Invalid("path is required")
	case !strings.HasPrefix(p, "/"):
		return body.Invalid("path must be absolute")
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == ".." {
			return body.Invalid("path must not contain ..")
		}
	}
	return nil
}

// fileRequest returns the request for the file that the query names.
func fileRequest(c *fiber.Ctx, op file.Op) (*file.Request, error) {
	given := c.Context().QueryArgs().PeekMulti("path")
	if len(given) > 1 {
		return nil, body.Invalid("path is given twice")
	}
	req := &file.Request{Op: op, Single: true}
	if len(given) == 1 {
		req.Path = string(given[0])
	}
	if err := checkPath(req.Path); err != nil {
		return nil, err
	}
	return req, req.Check()
}

// download responds with the bytes of a file.
func (h *Handler) download(c *fiber.Ctx) error {
	req, err := fileRequest(c, file.OpRead)
	if err != nil {
		return err
	}
	st, err := h.used(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	return files.Send(c, h.Streams, fiber.MIMEOctetStream, func(ctx context.Context) (*core.Files, error) {
		return h.Files.OpenFiles(ctx, p, st.ID, req)
	})
}

// upload stores the body as a file.
func (h *Handler) upload(c *fiber.Ctx) error {
	req, err := fileRequest(c, file.OpWrite)
	if err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(c.Get(fiber.HeaderContentType)), "multipart/") {
		return body.Invalid("the body must be the bytes of the file, with content type application/octet-stream")
	}
	st, err := h.used(c)
	if err != nil {
		return err
	}
	raw := bufio.NewReader(httpconn.Body(c))
	if _, err := raw.Peek(1); errors.Is(err, io.EOF) {
		return body.Invalid("the body is missing")
	}
	content, err := files.DecodeBody(c.Get(fiber.HeaderContentEncoding), raw)
	if err != nil {
		return err
	}
	f, err := h.Files.OpenFiles(c.UserContext(), auth.From(c), st.ID, req)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := files.Fill(f, content); err != nil {
		return uploadError(err)
	}
	return body.Write(c, fiber.StatusOK, body.Status{Status: "uploaded"})
}

// uploadError returns the error of a file that could not be written: what is missing is its directory.
func uploadError(err error) error {
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	return &kind.Error{Op: "upload", Kind: kind.Invalid, Msg: "the parent directory does not exist", Err: err}
}

// withStatus returns a route's error with the usual status, except those of a sandbox's files.
func withStatus(do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := do(c)
		if err == nil {
			return nil
		}
		b := httperr.Of(err)
		switch kind.Of(err) {
		case kind.Exhausted:
			b.Code = http.StatusInsufficientStorage
		case kind.Precondition:
			b.Code = http.StatusBadRequest
		default:
			return err
		}
		return route.WriteBody(c, &b)
	}
}
