package backend

import (
	"context"
	"io"
	"sync"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// handles are the open files of a session's connection, on one stream to the sandbox, which
// ends with the last of them. A stream that breaks takes its handles with it.
type handles struct {
	users int // open handles, and calls to open one; guarded by filesystem.mu

	mu     sync.Mutex // held during a call
	open   *core.Files
	cancel context.CancelFunc
	next   uint32
	err    error // why the stream broke
}

// OpenHandle implements [session.HandleOpener].
func (f *files) OpenHandle(ctx context.Context, p string) (session.ReadHandle, error) {
	return f.openHandle(ctx, &file.HandleCall{Op: file.HandleOpen, Path: p, Confine: f.reads})
}

// CreateHandle implements [session.HandleCreator].
func (f *files) CreateHandle(ctx context.Context, p string) (session.WriteHandle, error) {
	return f.openHandle(ctx, &file.HandleCall{Op: file.HandleOpen, Path: p, Replace: true, Confine: f.writes})
}

func (f *files) openHandle(ctx context.Context, call *file.HandleCall) (*handle, error) {
	if err := call.Check(); err != nil {
		return nil, err
	}
	h, err := f.use(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.next++
	call.Handle = h.next
	h.mu.Unlock()
	if _, err := h.call(ctx, call, nil, nil); err != nil {
		f.leave(h)
		return nil, err
	}
	return &handle{fs: f.filesystem, on: h, id: call.Handle}, nil
}

// use returns the stream for one more handle.
func (fs *filesystem) use(ctx context.Context) (*handles, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if h := fs.handles; h != nil && h.broken() == nil {
		h.users++
		return h, nil
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	open, err := fs.ops.OpenFiles(life, fs.p, fs.sbx, &file.Request{Op: file.OpHandles})
	if err != nil {
		cancel()
		return nil, err
	}
	fs.handles = &handles{users: 1, open: open, cancel: cancel}
	return fs.handles, nil
}

// leave ends the use of the stream by one handle.
func (fs *filesystem) leave(h *handles) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	if fs.handles == h {
		fs.handles = nil
	}
	h.open.Close()
	h.cancel()
}

func (h *handles) broken() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// call sends a call with data, and reads the result into buf. A call that is cut off breaks the
// stream: its result would be taken for that of the next.
func (h *handles) call(ctx context.Context, c *file.HandleCall, data, buf []byte) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, core.FilesTimeout)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return 0, h.err
	}
	stop := context.AfterFunc(ctx, h.cancel)
	n, failed, err := h.exchange(c, data, buf)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		h.err = kind.New(kind.Unavailable, "file", "", "the connection to the sandbox broke: open the file again")
		h.cancel()
		return 0, h.err
	}
	return n, failed
}

func (h *handles) exchange(c *file.HandleCall, data, buf []byte) (n int, failed, err error) {
	if _, err := h.open.Write(append(file.AppendFrame(nil, c.Append(nil)), data...)); err != nil {
		return 0, nil, err
	}
	raw, err := h.open.Only()
	if err != nil {
		return 0, nil, err
	}
	result, err := file.ParseHandleResult(raw)
	if err != nil {
		return 0, nil, err
	}
	if int(result.Length) > len(buf) {
		return 0, nil, file.ErrMalformed
	}
	n, err = io.ReadFull(h.open, buf[:result.Length])
	return n, result.Err(), err
}

// handle is an open file.
type handle struct {
	fs *filesystem
	on *handles
	id uint32
}

// ReadAt implements [session.ReadHandle].
func (h *handle) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	n, err := h.on.call(ctx, &file.HandleCall{Op: file.HandleRead, Handle: h.id, Offset: offset, Length: uint32(len(p))}, nil, p)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// WriteAt implements [session.WriteHandle].
func (h *handle) WriteAt(ctx context.Context, p []byte, offset int64) error {
	_, err := h.on.call(ctx, &file.HandleCall{Op: file.HandleWrite, Handle: h.id, Offset: offset, Length: uint32(len(p))}, p, nil)
	return err
}

// Close implements [session.ReadHandle]. It returns nil for a handle whose stream has broken.
func (h *handle) Close() error {
	defer h.fs.leave(h.on)
	if h.on.broken() != nil {
		return nil
	}
	_, err := h.on.call(context.Background(), &file.HandleCall{Op: file.HandleClose, Handle: h.id}, nil, nil)
	return err
}
