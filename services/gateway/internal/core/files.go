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

// targetFiles is what the streams of questions about files name.
const targetFiles = "files"

// Files is a question about a sandbox's files that was asked (package
// events/file). It belongs to one goroutine; Close must be called.
type Files struct {
	s    FilesStream
	r    *bufio.Reader
	buf  []byte
	stop func() bool
}

// FilesStream is what a question goes over: a *mux.Stream.
type FilesStream interface {
	io.ReadWriter
	CloseWrite() error
	Abort(err error)
}

// AskFiles puts a question about files to a running sandbox. It is cut when ctx
// ends. Errors: those of file.Request.Check, NotFound unless the sandbox runs,
// Conflict if it is paused, Unavailable where it cannot be reached. What the
// sandbox answers comes from the methods of Files.
func (c *Core) AskFiles(ctx context.Context, p Principal, id sandbox.ID, req *file.Request) (*Files, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	st, err := c.running(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if err := c.alive(&st); err != nil {
		return nil, err
	}
	s, err := c.openStream(ctx, &st, targetFiles)
	if err != nil {
		return nil, err
	}
	return AskOver(ctx, s, req)
}

// AskOver puts a question over a stream to whoever is at its other end.
func AskOver(ctx context.Context, s FilesStream, req *file.Request) (*Files, error) {
	f := &Files{s: s, r: bufio.NewReaderSize(s, filesBuffer)}
	f.stop = context.AfterFunc(ctx, func() { s.Abort(ctx.Err()) })
	if _, err := s.Write(file.AppendFrame(nil, req.Append(nil))); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

const filesBuffer = 16 << 10

// Entry gives the next entry of the answer, a filesystem.EntryInfo in protobuf's
// encoding that is valid until the next call; io.EOF after the last.
func (f *Files) Entry() ([]byte, error) {
	b, err := file.ReadFrame(f.r, f.buf)
	f.buf = b
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = kind.New(kind.Unavailable, "files", "", "the answer was cut")
	}
	return b, err
}

// Only gives the one entry of an answer that has one.
func (f *Files) Only() ([]byte, error) {
	b, err := f.Entry()
	if errors.Is(err, io.EOF) {
		err = kind.New(kind.Internal, "files", "", "the sandbox gave no entry")
	}
	return b, err
}

// Done waits for the end of an answer that has nothing more to say.
func (f *Files) Done() error {
	_, err := f.Entry()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return kind.New(kind.Internal, "files", "", "the sandbox said too much")
	}
	return err
}

// Part asks for a part of the file whose entry was given, which Read then gives.
func (f *Files) Part(part file.Range) error {
	_, err := f.s.Write(file.AppendFrame(nil, part.Append(nil)))
	return err
}

// Read gives content; io.EOF is the end of all of it.
func (f *Files) Read(p []byte) (int, error) { return f.r.Read(p) }

// Write takes content over.
func (f *Files) Write(p []byte) (int, error) { return f.s.Write(p) }

// CloseWrite says that all the content was written; the file is put in its place.
func (f *Files) CloseWrite() error { return f.s.CloseWrite() }

// Close gives up what has not come to its end.
func (f *Files) Close() {
	f.stop()
	f.s.Abort(nil)
}

// FilesTimeout bounds a question about files whose client says nothing: a tree may
// be large.
const FilesTimeout = 2 * time.Minute
