package core

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/sandbox"
)

// silent is a sandbox that answers nothing: its streams end when they are aborted.
type silent struct {
	*io.PipeReader
	w       *io.PipeWriter
	aborted atomic.Bool
}

func newSilent() *silent {
	r, w := io.Pipe()
	return &silent{PipeReader: r, w: w}
}

var errCut = errors.New("the stream was cut")

func (s *silent) Write(p []byte) (int, error) { return len(p), nil }
func (s *silent) CloseWrite() error           { return nil }

func (s *silent) Abort(error) {
	s.aborted.Store(true)
	s.w.CloseWithError(errCut)
}

func (s *silent) OpenFiles(ctx context.Context, _ Principal, _ sandbox.ID, req *file.Request) (*Files, error) {
	return OpenFilesOver(ctx, s, req)
}

// A request whose context ends returns that, and not the cut that the stream reports; any other
// error is that of the work. The stream is closed in each case.
func TestWithFilesReportsItsContext(t *testing.T) {
	wrong := errors.New("wrong")
	ended, cancel := context.WithCancel(t.Context())
	for _, tt := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // of a case
		do   func(*Files) error
		want error
	}{
		{"the context ends", ended, func(f *Files) error { cancel(); return f.Done() }, context.Canceled},
		{"the work fails", t.Context(), func(*Files) error { return wrong }, wrong},
		{"the work is done although the context ended", ended, func(*Files) error { return nil }, nil},
	} {
		s := newSilent()
		if err := WithFiles(tt.ctx, s, Principal{}, "i0", &file.Request{Op: file.OpStat, Path: "/"}, tt.do); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if !s.aborted.Load() {
			t.Errorf("%s: the stream is open", tt.name)
		}
	}
}
