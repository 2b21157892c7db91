package files

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// get responds with a file, or its head.
func (h *Handler) get(c *fiber.Ctx) error {
	a, err := newFileRequest(c, file.OpRead)
	if err != nil {
		return err
	}
	return Send(c, h.streams, "", func(ctx context.Context) (*core.Files, error) {
		return h.core.OpenFiles(ctx, a.principal, a.sandbox, &a.Request)
	})
}

// Send responds with the file that open opens, or with its head, as a content type; empty: that of the
// file's name.
func Send(c *fiber.Ctx, streams *stream.Streams, contentType string, open func(context.Context) (*core.Files, error)) error {
	coding, ok := negotiate(c.Get(fiber.HeaderAcceptEncoding))
	if !ok {
		return httperr.WriteAs(c, http.StatusNotAcceptable, fiber.NewError(http.StatusNotAcceptable, "no acceptable encoding: supported are identity and gzip"))
	}
	// The download continues after the handler has returned.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.UserContext()))
	f, err := open(ctx)
	if err != nil {
		cancel()
		return err
	}
	d := &download{f: f, cancel: cancel, log: streams.Log(), contentType: contentType}
	if err := d.open(); err != nil {
		d.Close()
		return err
	}
	res, err := d.answer(request(c), coding)
	if err != nil {
		d.Close()
		if refused, ok := errors.AsType[*fiber.Error](err); ok && refused.Code == http.StatusRequestedRangeNotSatisfiable {
			c.Set(fiber.HeaderContentRange, "bytes */"+strconv.FormatInt(d.entry.GetSize(), 10))
		}
		return err
	}
	for k, v := range c.Response().Header.All() { // set by the middleware
		if name := http.CanonicalHeaderKey(string(k)); name != fiber.HeaderContentType {
			res.Header[name] = append(res.Header[name], string(v))
		}
	}
	isolate(c, res.Header)
	get := func(context.Context) (*http.Response, error) { return res, nil }
	streams.Relay(c, true, get, nil)
	return nil
}

// isolate keeps a browser from running a file of a sandbox as a page of the gateway: its scripts
// could register a service worker and read the keys that the console stores. The host name of a
// sandbox is an origin of its own, where pages may run scripts, as with E2B.
func isolate(c *fiber.Ctx, h http.Header) {
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	if !route.Of(c).Host {
		h.Set(fiber.HeaderContentSecurityPolicy, "sandbox")
	}
}

// request returns the parts of a request that determine the head of the response.
func request(c *fiber.Ctx) *http.Request {
	r := &http.Request{Method: c.Method(), Header: make(http.Header)}
	for _, name := range [...]string{"Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since", "If-Match", "If-None-Match"} {
		if v := c.Get(name); v != "" && !(name == "Range" && strings.Contains(v, ",")) {
			r.Header.Set(name, strings.Clone(v))
		}
	}
	return r
}

// download is a file that is being sent to a client.
type download struct {
	f           *core.Files
	cancel      context.CancelFunc
	log         *slog.Logger
	contentType string // empty: that of the file's name
	entry       pb.EntryInfo
	body        io.Reader
}

// Read reads the body.
func (d *download) Read(p []byte) (int, error) { return d.body.Read(p) }

// Close aborts the rest of the download.
func (d *download) Close() error {
	d.f.Close()
	d.cancel()
	return nil
}

// open reads the file's entry from the sandbox.
func (d *download) open() error {
	raw, err := d.f.Only()
	if err != nil {
		return err
	}
	return kind.Wrap(kind.Internal, "read answer", "", proto.Unmarshal(raw, &d.entry))
}

// answer returns the complete response.
func (d *download) answer(r *http.Request, coding string) (*http.Response, error) {
	if d.entry.GetSize() == 0 {
		if err := d.measure(); err != nil {
			return nil, err
		}
	}
	head := &headRecorder{header: make(http.Header), status: http.StatusOK}
	d.describe(head.header)
	if coding == codingGzip && len(r.Header) == 0 && d.entry.GetSize() != 0 {
		return d.compressed(head.header)
	}
	at := sizedFile{size: d.entry.GetSize()}
	if at.size < 0 { // its size is unknown until it is read
		return &http.Response{StatusCode: http.StatusOK, Header: head.header, ContentLength: -1, Body: d}, nil
	}
	// The library writes the head; it reads no content, and the position at which it would
	// shows the requested range.
	http.ServeContent(head, r, "", d.entry.GetModifiedTime().AsTime().Truncate(time.Second), &at)
	length, err := strconv.ParseInt(head.header.Get(fiber.HeaderContentLength), 10, 64)
	if err != nil {
		length = 0 // 304, 412, or 416 with the library's text
	}
	switch {
	case head.status >= http.StatusBadRequest:
		text := strings.TrimSpace(string(head.text))
		return nil, fiber.NewError(head.status, cmp.Or(text, strings.ToLower(http.StatusText(head.status))))
	case d.body != nil: // measured: it has been read already
	case length > 0 && r.Method != http.MethodHead:
		if err := d.f.Part(file.Range{Offset: at.offset, Length: length}); err != nil {
			return nil, err
		}
		d.body = io.LimitReader(d.f, length)
	default:
		d.body = strings.NewReader("")
	}
	return &http.Response{StatusCode: head.status, Header: head.header, ContentLength: length, Body: d}, nil
}

// describe sets the headers that do not depend on the range.
func (d *download) describe(h http.Header) {
	ct := cmp.Or(d.contentType, mime.TypeByExtension(path.Ext(d.entry.GetName())), fiber.MIMEOctetStream)
	h.Set(fiber.HeaderContentType, ct)
	h.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
	if v := mime.FormatMediaType("inline", map[string]string{"filename": d.entry.GetName()}); v != "" {
		h.Set(fiber.HeaderContentDisposition, v)
	} else {
		h.Set(fiber.HeaderContentDisposition, "inline")
	}
}

// measureBytes is how much of a file of unknown size is read before the response begins.
const measureBytes = 64 << 10

// measure reads the beginning of a file whose reported size is 0: files in /proc report 0
// and are not empty.
func (d *download) measure() error {
	if err := d.f.Part(file.Range{Length: -1}); err != nil {
		return err
	}
	begin := make([]byte, measureBytes)
	n, err := io.ReadFull(d.f, begin)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		d.entry.Size = int64(n)
		d.body = strings.NewReader(string(begin[:n]))
		return nil
	case err != nil:
		return err
	}
	d.entry.Size = -1
	d.body = io.MultiReader(strings.NewReader(string(begin)), d.f)
	return nil
}

// compressed returns the response with gzip.
func (d *download) compressed(h http.Header) (*http.Response, error) {
	src := d.body
	if src == nil {
		if err := d.f.Part(file.Range{Length: -1}); err != nil {
			return nil, err
		}
		src = d.f
	}
	h.Set(fiber.HeaderContentEncoding, codingGzip)
	r, w := io.Pipe()
	d.body = r
	go func() {
		w.CloseWithError(recovery.Do(d.log, "compression", func() error {
			z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err == nil {
				_, err = io.Copy(z, src)
			}
			if err == nil {
				err = z.Close()
			}
			return err
		}))
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: h, ContentLength: -1, Body: &pipedDownload{d, r}}, nil
}

// pipedDownload is a download that is fed by a goroutine, which Close ends.
type pipedDownload struct {
	*download
	r *io.PipeReader
}

func (p *pipedDownload) Close() error {
	p.r.Close()
	return p.download.Close()
}

// headRecorder records a response's head, and the text of an error.
type headRecorder struct {
	header http.Header
	status int
	text   []byte
}

func (h *headRecorder) Header() http.Header  { return h.header }
func (h *headRecorder) WriteHeader(code int) { h.status = code }
func (h *headRecorder) Write(p []byte) (int, error) {
	h.text = append(h.text, p...)
	return len(p), nil
}

// sizedFile is a file of a given size without content: it records the offset at which reading
// would begin.
type sizedFile struct{ size, offset int64 }

func (p *sizedFile) Read([]byte) (int, error) { return 0, io.EOF }

func (p *sizedFile) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset += p.size
	}
	p.offset = offset
	return offset, nil
}

const codingGzip = "gzip"

// negotiate returns the content coding; false if none is acceptable.
func negotiate(accept string) (coding string, ok bool) {
	if accept == "" {
		return "", true
	}
	q := map[string]float64{}
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		weight := 1.0
		if v, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
			if w, err := strconv.ParseFloat(v, 64); err == nil {
				weight = w
			}
		}
		q[strings.ToLower(strings.TrimSpace(name))] = weight
	}
	gz, named := q[codingGzip]
	other, rest := q["*"]
	if !named {
		gz = other
	}
	identity, hasIdentity := q["identity"]
	switch {
	case !hasIdentity && rest:
		identity = other
	case !hasIdentity && len(q) == 1 && named:
		identity = max(gz/2, 0.001) // nothing else was named: prefer gzip unless it is refused
	case !hasIdentity:
		identity = max(gz, 0.001)
	}
	switch {
	case gz > identity:
		return codingGzip, true
	case identity > 0:
		return "", true
	}
	return "", false
}
