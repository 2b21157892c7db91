package files

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"path"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// fakeCore implements Core with sandboxes that accept every file.
type fakeCore struct{ n int }

func (w *fakeCore) OpenFiles(ctx context.Context, _ core.Principal, _ sandbox.ID, req *file.Request) (*core.Files, error) {
	w.n++
	entry, err := proto.Marshal(&pb.EntryInfo{Path: req.Path, Name: path.Base(req.Path)})
	if err != nil {
		return nil, err
	}
	return core.OpenFilesOver(ctx, &cannedStream{Reader: bytes.NewReader(file.AppendFrame(nil, entry)), Writer: io.Discard}, req)
}

type cannedStream struct {
	io.Reader
	io.Writer
}

func (*cannedStream) CloseWrite() error { return nil }
func (*cannedStream) Abort(error)       {}

// The number of names that a form makes the gateway hold is limited.
func TestFormsAreBounded(t *testing.T) {
	form := func(n int, field, name string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; name=%q; filename=\"/%s%d\"\r\n\r\nx\r\n", field, name, i)
		}
		return b.String() + "--b--\r\n"
	}
	const long = 4000
	most := maxNameBytes / (2 * long)
	for _, tt := range []struct {
		name, form string
		files      int
		ok         bool
	}{
		{"many files", form(maxParts, "file", ""), maxParts, true},
		{"one more", form(maxParts+1, "file", ""), maxParts, false},
		{"many parts that are not files", form(maxParts+1, "other", ""), 0, false},
		{"long names", form(most, "file", strings.Repeat("x", long)), most, true},
		{"more of them", form(most+2, "file", strings.Repeat("x", long)), most, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &fakeCore{}
			out, err := New(w, nil).parts(t.Context(), fileRequest{Request: file.Request{Op: file.OpWrite}}, multipart.NewReader(strings.NewReader(tt.form), "b"))
			if w.n != tt.files || (err == nil) != tt.ok || tt.ok && len(out) != tt.files || !tt.ok && !kind.Is(err, kind.Invalid) {
				t.Errorf("%d files written, %d reported, %v; want %d, ok %v", w.n, len(out), err, tt.files, tt.ok)
			}
		})
	}
}
