package session

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// maxHandles is the maximum number of open handles of a connection.
const maxHandles = 128

// handles are the open files of a connection. They end with it.
type handles struct {
	mu   sync.Mutex
	all  map[string]*handle
	over bool
}

// handle is an open file, or one that is being opened.
type handle struct {
	mu     sync.Mutex // held while the file is used
	reader ReadHandle // nil unless it is open for reading
	writer WriteHandle
	path   protocol.Path
}

var errTooManyHandles = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "more than %d open file handles", maxHandles)

func unknownHandle(id string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "unknown file handle %s", id)
}

// reserve adds a handle, which is locked.
func (h *handles) reserve(id string) (*handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over:
		return nil, context.Canceled
	case h.all[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle %s already exists", id)
	case len(h.all) >= maxHandles:
		return nil, errTooManyHandles
	}
	if h.all == nil {
		h.all = make(map[string]*handle)
	}
	at := &handle{}
	at.mu.Lock()
	h.all[id] = at
	return at, nil
}

func (h *handles) get(id string) (*handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.all[id]; at != nil {
		return at, nil
	}
	return nil, unknownHandle(id)
}

// remove removes a handle and returns it; nil if it does not exist.
func (h *handles) remove(id string) *handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.all[id]
	delete(h.all, id)
	return at
}

// closeAll closes all handles, which nothing uses any more.
func (h *handles) closeAll() {
	h.mu.Lock()
	all := h.all
	h.all, h.over = nil, true
	h.mu.Unlock()
	for _, at := range all {
		at.close()
	}
}

func (h *handle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, w := h.reader, h.writer
	h.reader, h.writer = nil, nil
	switch {
	case r != nil:
		return r.Close()
	case w != nil:
		return w.Close()
	}
	return nil
}

// onHandle serves the methods with a handle.
func (c *conn) onHandle(ctx context.Context, r *request, method string, p *protocol.HandleParams) (any, error) {
	switch method {
	case protocol.FSOpen:
		return c.openHandle(ctx, p)
	case protocol.FSClose:
		h := c.handles.remove(p.HandleID)
		if h == nil {
			return protocol.Empty{}, nil
		}
		return protocol.Empty{}, fileError(method, h.path, h.close())
	}
	h, err := c.handles.get(p.HandleID)
	if err != nil {
		return nil, err
	}
	if method == protocol.FSReadBlock {
		if err := c.takeLarge(ctx, r); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reader == nil && h.writer == nil { // closed meanwhile
		return nil, unknownHandle(p.HandleID)
	}
	if method == protocol.FSWriteBlock {
		if h.writer == nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle %s is not open for writing", p.HandleID)
		}
		return protocol.Empty{}, fileError(method, h.path, h.writer.WriteAt(ctx, p.Chunk, int64(p.Offset)))
	}
	if h.reader == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle %s is not open for reading", p.HandleID)
	}
	buf := make([]byte, p.Len)
	n, err := h.reader.ReadAt(ctx, buf, int64(p.Offset))
	eof := errors.Is(err, io.EOF)
	if err != nil && !eof {
		return nil, fileError(method, h.path, err)
	}
	return protocol.Block{Chunk: buf[:n], EOF: eof}, nil
}

func (c *conn) openHandle(ctx context.Context, p *protocol.HandleParams) (any, error) {
	f, err := c.files(protocol.FSOpen, p.Sandbox)
	if err != nil {
		return nil, err
	}
	opener, reads := f.(HandleOpener)
	creator, creates := f.(HandleCreator)
	if !reads || p.Write() && !creates {
		return nil, notOffered(protocol.FSOpen)
	}
	h, err := c.handles.reserve(p.HandleID)
	if err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	h.path = p.Path
	var (
		r ReadHandle
		w WriteHandle
	)
	if p.Write() {
		w, err = creator.CreateHandle(ctx, p.Path.Name)
	} else {
		r, err = opener.OpenHandle(ctx, p.Path.Name)
	}
	if err != nil {
		c.handles.remove(p.HandleID)
		return nil, fileError(protocol.FSOpen, p.Path, err)
	}
	h.reader, h.writer = r, w
	return protocol.Handle{HandleID: p.HandleID}, nil
}
