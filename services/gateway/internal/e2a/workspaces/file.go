package workspaces

import (
	"context"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

// linked is the response with a link.
type linked struct {
	URL     string `json:"url"`
	Seconds int    `json:"expires_in"`
}

func writeLink(c *fiber.Ctx, url string) error {
	return body.Write(c, fiber.StatusOK, linked{url, int(workspaces.LinkFor.Seconds())})
}

// download serves GET of a file: a link, a redirect with ?redirect=1, or its bytes if the client accepts
// application/octet-stream.
func (h *Handler) download(c *fiber.Ctx) error {
	of, p, err := fileOf(c)
	if err != nil {
		return err
	}
	if c.Query("redirect") != "1" && wantsBytes(c.Get(fiber.HeaderAccept)) {
		return h.send(c, of, p)
	}
	url, err := h.store.Download(c.UserContext(), h.base(c), of, p)
	if err != nil {
		return err
	}
	if c.Query("redirect") == "1" {
		c.Set(fiber.HeaderCacheControl, "no-store")
		return c.Redirect(url, fiber.StatusFound)
	}
	return writeLink(c, url)
}

// wantsBytes reports whether an Accept header names the type of bytes.
func wantsBytes(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), fiber.MIMEOctetStream) {
			return true
		}
	}
	return false
}

// send responds with the bytes of a file. The response continues after the handler has returned.
func (h *Handler) send(c *fiber.Ctx, of workspace.Scope, p workspace.Path) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.UserContext()))
	f, err := h.store.Open(ctx, of, p)
	if err != nil {
		cancel()
		return err
	}
	res := &http.Response{
		StatusCode: http.StatusOK, ContentLength: f.Size, Body: &download{f, cancel},
		Header: http.Header{
			fiber.HeaderContentType:         {fiber.MIMEOctetStream},
			fiber.HeaderLastModified:        {f.Modified.UTC().Format(http.TimeFormat)},
			fiber.HeaderCacheControl:        {"no-store"},
			fiber.HeaderContentDisposition:  {"attachment"}, // a browser must not show it as a page of ours
			fiber.HeaderXContentTypeOptions: {"nosniff"},
		},
	}
	for k, v := range c.Response().Header.All() { // set by the middleware
		if name := http.CanonicalHeaderKey(string(k)); name != fiber.HeaderContentType {
			res.Header[name] = append(res.Header[name], string(v))
		}
	}
	h.streams.Relay(c, true, func(context.Context) (*http.Response, error) { return res, nil }, nil)
	return nil
}

// download is a file that is sent to a client.
type download struct {
	workspaces.File

	cancel context.CancelFunc
}

// Read reads the file.
func (d *download) Read(p []byte) (int, error) { return d.Body.Read(p) }

// Close ends the download.
func (d *download) Close() error {
	d.cancel()
	return d.Body.Close()
}

// upload serves PUT of a file: it responds with a link for the upload.
func (h *Handler) upload(c *fiber.Ctx) error {
	of, p, err := fileOf(c)
	if err != nil {
		return err
	}
	if sent := string(c.Body()); sent != "" && sent != "{}" {
		return body.Invalid("the bytes of a file are sent with PUT to the url of the response to an empty PUT")
	}
	url, err := h.store.Upload(c.UserContext(), h.base(c), of, p)
	if err != nil {
		return err
	}
	return writeLink(c, url)
}

// remove serves DELETE of a file.
func (h *Handler) remove(c *fiber.Ctx) error {
	of, p, err := fileOf(c)
	if err == nil {
		err = h.store.Remove(c.UserContext(), of, p)
	}
	return deleted(c, err)
}

// read serves GET of a link.
func (h *Handler) read(c *fiber.Ctx) error {
	of, p, err := h.links.Check(fiber.MethodGet, c.Params("token"))
	if err != nil {
		return err
	}
	return h.send(c, of, p)
}

// write serves PUT to a link. The body must have a length: otherwise an upload that breaks off could
// not be told from a complete one.
func (h *Handler) write(c *fiber.Ctx) error {
	of, p, err := h.links.Check(fiber.MethodPut, strings.Clone(c.Params("token")))
	if err != nil {
		return err
	}
	size := int64(c.Request().Header.ContentLength())
	switch {
	case size < 0:
		return fiber.NewError(http.StatusLengthRequired, "the request requires a Content-Length")
	case size > workspace.MaxFile:
		return fiber.ErrRequestEntityTooLarge
	}
	if err := h.store.Put(c.UserContext(), of, p, size, httpconn.Body(c)); err != nil {
		return err
	}
	return c.Send(nil)
}
