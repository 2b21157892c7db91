package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"path"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// uploaded is a completely uploaded file in a response.
type uploaded struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// size returns approximately how much memory it takes.
func (w *uploaded) size() int {
	n := len(w.Path) + len(w.Name)
	for k, v := range w.Metadata {
		n += len(k) + len(v)
	}
	return n
}

const metaHeader = "x-metadata-"

// post stores one or more files.
func (h *Handler) post(c *fiber.Ctx) error {
	out, err := h.upload(c, httpconn.Body(c))
	if err != nil {
		return err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Send(raw)
}

func (h *Handler) upload(c *fiber.Ctx, body io.Reader) ([]uploaded, error) {
	a, err := newFileRequest(c, file.OpWrite)
	if err != nil {
		return nil, err
	}
	if a.Meta, err = metadata(c); err != nil {
		return nil, err
	}
	if a.Mode, err = mode(c.Query("mode")); err != nil {
		return nil, err
	}
	content, err := DecodeBody(c.Get(fiber.HeaderContentEncoding), body)
	if err != nil {
		return nil, err
	}
	media, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	switch {
	case err == nil && media == fiber.MIMEOctetStream:
		if a.Path == "" {
			return nil, invalid("path query parameter is required for raw body upload")
		}
		w, err := h.write(c.UserContext(), &a, content)
		return []uploaded{w}, err
	case err == nil && strings.HasPrefix(media, "multipart/") && params["boundary"] != "":
		return h.parts(c.UserContext(), a, multipart.NewReader(content, params["boundary"]))
	}
	return nil, invalid("unsupported content type: %q, expected multipart/form-data or application/octet-stream", c.Get(fiber.HeaderContentType))
}

// Limits on the response to a form, which is held in memory until all files have arrived.
const (
	maxParts     = 10_000
	maxNameBytes = 8 << 20 // bytes of the files' names and metadata
)

// parts writes the files of a form as they arrive.
func (h *Handler) parts(ctx context.Context, a fileRequest, form *multipart.Reader) ([]uploaded, error) {
	out := []uploaded{}
	nameBytes := 0
	seen := make(map[string]bool)
	named := a.Path // the query's path applies to all files
	for n := 0; ; n++ {
		part, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return nil, invalid("the form has no parts")
		case errors.Is(err, io.EOF):
			return out, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
		if n == maxParts || nameBytes > maxNameBytes {
			return nil, invalid("the form has more than %d parts or %d bytes of names and metadata: the files before these were uploaded", maxParts, maxNameBytes)
		}
		if part.FormName() != "file" {
			continue
		}
		if a.Path = named; named == "" {
			if a.Path, err = fileName(part); err != nil {
				return nil, err
			}
		}
		if seen[path.Clean(a.Path)] {
			return nil, duplicatePath(a.Path, out)
		}
		w, err := h.write(ctx, &a, part)
		if err != nil {
			return nil, err
		}
		if seen[w.Path] {
			return nil, duplicatePath(w.Path, out)
		}
		seen[path.Clean(a.Path)], seen[w.Path] = true, true
		out = append(out, w)
		nameBytes += w.size()
	}
}

func duplicatePath(p string, done []uploaded) error {
	text := fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", p)
	var others []string
	for _, w := range done {
		if w.Path != p {
			others = append(others, w.Path)
		}
	}
	if len(others) > 0 {
		text += ", also the following files were uploaded: " + strings.Join(others, ", ")
	}
	return invalid("%s", text)
}

// fileName returns the name of a part's file, including slashes.
func fileName(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get(fiber.HeaderContentDisposition))
	if err != nil || params["filename"] == "" {
		return "", invalid("a part of the form has no filename")
	}
	return params["filename"], nil
}

// write streams one file into the sandbox.
func (h *Handler) write(ctx context.Context, a *fileRequest, content io.Reader) (uploaded, error) {
	f, err := h.core.OpenFiles(ctx, a.principal, a.sandbox, &a.Request)
	if err != nil {
		return uploaded{}, err
	}
	defer f.Close()
	e, err := Fill(f, content)
	return uploaded{Path: e.GetPath(), Name: e.GetName(), Type: "file", Metadata: e.GetMetadata()}, err
}

// Fill sends the content of a file, completes it and returns its entry.
func Fill(f *core.Files, content io.Reader) (*pb.EntryInfo, error) {
	src := &source{Reader: content}
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{src}, make([]byte, copyBuffer)); err != nil {
		if src.err != nil {
			return nil, bodyError(src.err)
		}
		return nil, err
	}
	if err := f.CloseWrite(); err != nil {
		return nil, err
	}
	return only(f)
}

// only reads the entry of a response that has exactly one.
func only(f *core.Files) (*pb.EntryInfo, error) {
	raw, err := f.Only()
	if err != nil {
		return nil, err
	}
	e := &pb.EntryInfo{}
	if err := proto.Unmarshal(raw, e); err != nil {
		return nil, kind.Wrap(kind.Internal, "read answer", "", err)
	}
	return e, nil
}

const copyBuffer = 64 << 10

// source records a read error, to distinguish it from an error of the sandbox.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// mode parses a file's permissions in octal; empty is 0, which keeps those of an existing
// file.
func mode(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, invalid("mode must be an octal number from 1 to 777")
	}
	return uint32(n), nil
}

// metadata returns the file's metadata from the headers.
func metadata(c *fiber.Ctx) (map[string]string, error) {
	var meta map[string]string
	for k, v := range c.Request().Header.All() {
		key, ok := strings.CutPrefix(strings.ToLower(string(k)), metaHeader)
		if !ok {
			continue
		}
		if meta == nil {
			meta = make(map[string]string)
		}
		meta[key] = string(v)
	}
	return meta, file.CheckMeta(meta)
}

// DecodeBody removes the content coding of a body.
func DecodeBody(coding string, body io.Reader) (io.Reader, error) {
	switch strings.ToLower(coding) {
	case "", "identity":
		return body, nil
	case codingGzip:
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, bodyError(err)
		}
		return z, nil
	}
	return nil, invalid("unsupported Content-Encoding: %s", coding)
}

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "upload", "", format, args...)
}

// bodyError returns the error of a body that could not be read to its end.
func bodyError(err error) error {
	var k *kind.Error
	if errors.As(err, &k) {
		return err
	}
	return &kind.Error{Op: "upload", Kind: kind.Invalid, Msg: "the body cannot be read: " + err.Error(), Err: err}
}
