package builds

import (
	"context"
	"crypto/hmac"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/builder"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Contexts stores the files that builds copy.
type Contexts interface {
	HasContext(ctx context.Context, p core.Principal, sum string) (bool, error)
	PutContext(ctx context.Context, tenant, sum string, r io.Reader) error
}

// Names checks the names of templates.
type Names interface {
	OwnName(ctx context.Context, p core.Principal, tmpl string) (string, error)
}

// Signer derives signatures from a key.
type Signer interface{ DeriveKey(text string) string }

// FileHandler serves the files that builds copy.
type FileHandler struct {
	contexts  Contexts
	templates Names
	signer    Signer
	log       *slog.Logger
}

// NewFiles returns a handler.
func NewFiles(c Contexts, n Names, s Signer, log *slog.Logger) *FileHandler {
	return &FileHandler{c, n, s, log}
}

// A build's files are uploaded to UploadPath with a signed link, which is valid for a limited
// time.
const (
	UploadPath = "/templates/uploads/"

	linkFor   = time.Hour
	maxUpload = 4 << 30 // bytes
)

// Link reports whether a build's files are stored, or returns the link for the upload.
func (h *FileHandler) Link(c *fiber.Ctx) error {
	sum, err := template.ParseSum(strings.Clone(c.Params("hash")))
	if err != nil {
		return err
	}
	tmpl, err := wire.PathName(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	if _, err := h.templates.OwnName(c.UserContext(), p, tmpl); err != nil {
		return err
	}
	present, err := h.contexts.HasContext(c.UserContext(), p, string(sum))
	if err != nil {
		return err
	}
	until := strconv.FormatInt(time.Now().Add(linkFor).Unix(), 10)
	q := url.Values{"expires": {until}, "signature": {h.signature(p.Tenant, string(sum), until)}}
	link := c.BaseURL() + UploadPath + p.Tenant + "/" + string(sum) + "?" + q.Encode()
	return c.Status(fiber.StatusCreated).JSON(fiber.Map{"present": present, "url": link, "headers": fiber.Map{}})
}

func (h *FileHandler) signature(tenant, sum, until string) string {
	return h.signer.DeriveKey("upload." + tenant + "." + sum + "." + until)
}

// Upload stores a build's files. A signature replaces the key.
func (h *FileHandler) Upload(c *fiber.Ctx) error {
	sum, err := template.ParseSum(strings.Clone(c.Params("hash")))
	if err != nil {
		return err
	}
	tenant, until := strings.Clone(c.Params("tenant")), strings.Clone(c.Query("expires"))
	if !hmac.Equal([]byte(c.Query("signature")), []byte(h.signature(tenant, string(sum), until))) {
		return kind.New(kind.Denied, "upload", "", "the link's signature is invalid")
	}
	if at, err := strconv.ParseInt(until, 10, 64); err != nil || time.Now().Unix() > at {
		return kind.New(kind.Denied, "upload", "", "the link has expired")
	}
	if c.Request().Header.ContentLength() > maxUpload {
		return fiber.ErrRequestEntityTooLarge
	}
	body := newChecked(httpconn.Body(c), h.log)
	defer body.close()
	if err := h.contexts.PutContext(c.UserContext(), tenant, string(sum), body); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusOK)
}

// checked validates a client's upload while it is read: an invalid upload ends in an error
// instead of io.EOF.
type checked struct {
	r    io.Reader
	left int64
	to   *io.PipeWriter
	done chan error // receives a value when the check has ended
}

func newChecked(r io.Reader, log *slog.Logger) *checked {
	from, to := io.Pipe()
	k := &checked{r: r, left: maxUpload, to: to, done: make(chan error, 1)}
	go func() {
		err := recovery.Do(log, "check of files", func() error { return builder.CheckContext(from) })
		from.CloseWithError(err)
		k.done <- err
	}()
	return k
}

func (k *checked) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if k.left -= int64(n); k.left < 0 {
		return 0, fiber.ErrRequestEntityTooLarge
	}
	if n > 0 {
		if _, bad := k.to.Write(p[:n]); bad != nil {
			return 0, k.verdict()
		}
	}
	if errors.Is(err, io.EOF) {
		k.to.Close()
		if bad := k.verdict(); bad != nil {
			return n, bad
		}
	}
	return n, err
}

// verdict waits for the end of the check.
func (k *checked) verdict() error {
	err := <-k.done
	k.done <- err
	return err
}

// close ends the check early.
func (k *checked) close() {
	k.to.CloseWithError(io.ErrUnexpectedEOF)
	k.verdict() //nolint:errcheck // already reported, or irrelevant
}
