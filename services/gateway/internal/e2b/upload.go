package e2b

import (
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
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// The files that a build copies go to UploadPath, by whoever has a link there: it
// is signed, and good for a while.
const (
	UploadPath = "/templates/uploads/"

	linkFor   = time.Hour
	maxUpload = 4 << 30 // bytes
)

// filesLink says whether a build's files are stored, and where to put them.
func (h *Handler) filesLink(c *fiber.Ctx) error {
	sum, err := template.ParseSum(strings.Clone(c.Params("hash")))
	if err != nil {
		return err
	}
	tmpl, err := named(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	if _, err := h.core.OwnName(c.UserContext(), p, tmpl); err != nil {
		return err
	}
	present, err := h.core.HasContext(c.UserContext(), p, string(sum))
	if err != nil {
		return err
	}
	until := strconv.FormatInt(time.Now().Add(linkFor).Unix(), 10)
	q := url.Values{"expires": {until}, "signature": {h.signature(p.Tenant, string(sum), until)}}
	link := c.BaseURL() + UploadPath + p.Tenant + "/" + string(sum) + "?" + q.Encode()
	return c.Status(fiber.StatusCreated).JSON(fiber.Map{"present": present, "url": link, "headers": fiber.Map{}})
}

func (h *Handler) signature(tenant, sum, until string) string {
	return h.core.Secretly("upload." + tenant + "." + sum + "." + until)
}

// Upload stores a build's files. It wants a signature instead of a key.
func (h *Handler) Upload(c *fiber.Ctx) error {
	sum, err := template.ParseSum(strings.Clone(c.Params("hash")))
	if err != nil {
		return err
	}
	tenant, until := strings.Clone(c.Params("tenant")), strings.Clone(c.Query("expires"))
	if !hmac.Equal([]byte(c.Query("signature")), []byte(h.signature(tenant, string(sum), until))) {
		return kind.New(kind.Denied, "upload", "", "the link's signature is wrong")
	}
	if at, err := strconv.ParseInt(until, 10, 64); err != nil || time.Now().Unix() > at {
		return kind.New(kind.Denied, "upload", "", "the link has expired")
	}
	if c.Request().Header.ContentLength() > maxUpload {
		return fiber.ErrRequestEntityTooLarge
	}
	body := newChecked(stream.Body(c), h.cfg.Slog)
	defer body.close()
	if err := h.core.PutContext(c.UserContext(), tenant, string(sum), body); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusOK)
}

// checked is a client's upload, which is checked while it is read: it ends in an
// error instead of io.EOF if it is not what it should be.
type checked struct {
	r    io.Reader
	left int64
	to   *io.PipeWriter
	done chan error // has a value when the check has ended
}

func newChecked(r io.Reader, log *slog.Logger) *checked {
	from, to := io.Pipe()
	k := &checked{r: r, left: maxUpload, to: to, done: make(chan error, 1)}
	go func() {
		err := recovery.Do(log, "check of files", func() error { return builder.CheckContext(from) })
		from.CloseWithError(err) //nolint:errcheck // it never fails
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
		k.to.Close() //nolint:errcheck // it never fails
		if bad := k.verdict(); bad != nil {
			return n, bad
		}
	}
	return n, err
}

// verdict waits for the check's end.
func (k *checked) verdict() error {
	err := <-k.done
	k.done <- err
	return err
}

// close ends the check, however far it is.
func (k *checked) close() {
	k.to.CloseWithError(io.ErrUnexpectedEOF) //nolint:errcheck // it never fails
	k.verdict()                              //nolint:errcheck // it was told, or is of no use
}
