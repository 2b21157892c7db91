package core

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Files is an open request about a sandbox's files (package events/file). It belongs to
// one goroutine, which must call Close.
type Files struct {
	s    FilesStream
	r    *bufio.Reader
	buf  []byte
	stop func() bool
	end  func() // called by Close; may be nil
}

// FilesStream is the transport of a file request: a [mux.Stream].
type FilesStream interface {
	io.ReadWriter
	CloseWrite() error
	Abort(err error)
}

// OpenFilesOver sends a file request over a stream.
func OpenFilesOver(ctx context.Context, s FilesStream, req *file.Request) (*Files, error) {
	f := &Files{s: s, r: bufio.NewReaderSize(s, filesBuffer)}
	f.stop = context.AfterFunc(ctx, func() { s.Abort(ctx.Err()) })
	if _, err := s.Write(file.AppendFrame(nil, req.Append(nil))); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

const filesBuffer = 16 << 10

// Entry returns the next entry of the answer, a filesystem.EntryInfo in protobuf's
// encoding that is valid until the next call; io.EOF after the last.
func (f *Files) Entry() ([]byte, error) {
	b, err := file.ReadFrame(f.r, f.buf)
	f.buf = b
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = kind.New(kind.Unavailable, "files", "", "the answer was truncated")
	}
	return b, err
}

// Only returns the entry of an answer that has exactly one.
func (f *Files) Only() ([]byte, error) {
	b, err := f.Entry()
	if errors.Is(err, io.EOF) {
		err = kind.New(kind.Internal, "files", "", "the sandbox sent no entry")
	}
	return b, err
}

// Done waits for the end of an answer that has no further entries.
func (f *Files) Done() error {
	_, err := f.Entry()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return kind.New(kind.Internal, "files", "", "the sandbox sent an unexpected entry")
	}
	return err
}

// Part requests a range of the file whose entry was read; Read then returns it.
func (f *Files) Part(part file.Range) error {
	_, err := f.s.Write(file.AppendFrame(nil, part.Append(nil)))
	return err
}

// Read reads content; io.EOF marks the end of all of it.
func (f *Files) Read(p []byte) (int, error) { return f.r.Read(p) }

// Write sends content.
func (f *Files) Write(p []byte) (int, error) { return f.s.Write(p) }

// CloseWrite ends the content; the sandbox then puts the file in place.
func (f *Files) CloseWrite() error { return f.s.CloseWrite() }

// OnClose sets a function that Close calls, each time.
func (f *Files) OnClose(end func()) { f.end = end }

// Close aborts the request unless it has finished.
func (f *Files) Close() {
	f.stop()
	f.s.Abort(nil)
	if f.end != nil {
		f.end()
	}
}

// FileOpener opens requests about the files of sandboxes.
type FileOpener interface {
	OpenFiles(ctx context.Context, p Principal, sbx sandbox.ID, req *file.Request) (*Files, error)
}

// WithFiles sends a request about a sandbox's files, calls do with the response and closes it.
//
// Errors: that of ctx if it ends first, or a Deadline after [FilesTimeout]; the stream's own
// error would report only a cut.
func WithFiles(ctx context.Context, o FileOpener, p Principal, sbx sandbox.ID, req *file.Request, do func(*Files) error) error {
	ctx, cancel := context.WithTimeout(ctx, FilesTimeout)
	defer cancel()
	open, err := o.OpenFiles(ctx, p, sbx, req)
	if err != nil {
		return err
	}
	defer open.Close()
	if err = do(open); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// FilesTimeout is the default timeout of a file request: a tree may be large.
const FilesTimeout = 2 * time.Minute
