package files

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"

	"github.com/millrace/millrace/events/kind"
)

// Limits of an upload.
const (
	maxUploads = 20
	maxUpload  = 1 << 20 // bytes of a file, exclusive
)

// Upload writes the files of a form as they arrive: the parts with a file name.
func Upload(ctx context.Context, to Store, contentType string, body io.Reader) error {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return invalid("the body must be multipart/form-data")
	}
	form := multipart.NewReader(body, params["boundary"])
	for n := 0; ; {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return invalid("the form is malformed or incomplete")
		}
		name := filename(part)
		if name == "" {
			continue
		}
		if n++; n > maxUploads {
			return invalid("Too many files")
		}
		if name, err = Check(name); err != nil {
			return err
		}
		content := &limited{from: part}
		if err := to.Write(ctx, name, content); content.err != nil {
			return content.err
		} else if err != nil {
			return err
		}
	}
}

// filename returns the name of a part's file, with its directories, which
// [multipart.Part.FileName] removes.
func filename(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

// limited reads a file up to the limit, and records why it cannot be read.
type limited struct {
	from io.Reader
	n    int
	err  error
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.n += n; l.n >= maxUpload {
		l.err = invalid("Too large file")
	} else if err != nil && !errors.Is(err, io.EOF) {
		l.err = kind.Wrap(kind.Invalid, "upload", "", err)
	}
	if l.err != nil {
		return 0, l.err
	}
	return n, err
}
