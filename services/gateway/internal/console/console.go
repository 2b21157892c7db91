package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
)

//go:embed web
var web embed.FS

// Policy is the Content-Security-Policy of all files.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Prefix is the path of all files other than the page.
const Prefix = "/console/"

const index = "index.html"

// file is an embedded file, ready to send.
type file struct {
	mime, etag string
	raw, zip   []byte
}

// Handler serves the console. It is safe for concurrent use.
type Handler struct {
	files func() (map[string]file, error) // by their path
}

// New returns the console. It compresses the files when the first one is requested.
func New() *Handler { return &Handler{sync.OnceValues(load)} }

func load() (map[string]file, error) {
	files := map[string]file{}
	root, err := fs.Sub(web, "web")
	if err != nil {
		return nil, err
	}
	return files, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files[name], err = prepare(name, raw)
		return err
	})
}

// types are the media types by extension: those of the machine may differ.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

func prepare(name string, raw []byte) (file, error) {
	t, ok := types[path.Ext(name)]
	if !ok {
		return file{}, fmt.Errorf("console file %s has no known type", name)
	}
	sum := sha256.Sum256(raw)
	var zip bytes.Buffer
	w, err := gzip.NewWriterLevel(&zip, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err := w.Write(raw); err != nil {
		return file{}, err
	}
	if err := w.Close(); err != nil {
		return file{}, err
	}
	return file{mime: t, etag: hex.EncodeToString(sum[:12]), raw: raw, zip: zip.Bytes()}, nil
}

// Page serves the page.
func (h *Handler) Page(c *fiber.Ctx) error { return h.serve(c, index) }

// Register adds the route of the files.
func (h *Handler) Register(r fiber.Router) {
	r.Get(Prefix+"*", func(c *fiber.Ctx) error { return h.serve(c, c.Params("*")) })
}

// serve responds with a file, compressed if the client accepts that.
func (h *Handler) serve(c *fiber.Ctx, name string) error {
	files, err := h.files()
	if err != nil {
		return err
	}
	f, ok := files[name]
	if !ok {
		return fiber.ErrNotFound
	}
	c.Set(fiber.HeaderContentSecurityPolicy, Policy)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	c.Set("Cross-Origin-Opener-Policy", "same-origin")
	c.Set(fiber.HeaderCacheControl, "no-cache")
	c.Vary(fiber.HeaderAccept, fiber.HeaderAcceptEncoding)
	body, etag := f.raw, `"`+f.etag+`"`
	if c.AcceptsEncodings("identity", "gzip") == "gzip" {
		body, etag = f.zip, `"`+f.etag+`-gzip"`
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	c.Set(fiber.HeaderETag, etag)
	if strings.Contains(c.Get(fiber.HeaderIfNoneMatch), etag) {
		return c.SendStatus(fiber.StatusNotModified)
	}
	c.Set(fiber.HeaderContentType, f.mime)
	return c.Send(body)
}
