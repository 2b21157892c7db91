package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

const (
	// maxHTTP is the maximum number of HTTP requests in progress on a connection: each has a
	// stream, of which a sandbox has 128.
	maxHTTP = 16
	// maxBody is the maximum size of a body in one answer.
	maxBody = 8 << 20
	// deltaSize is the maximum size of a piece of a streamed body.
	deltaSize = 64 << 10
	// maxTimeout limits a request whose client sets no limit.
	maxTimeout = time.Hour
)

// requests are the ids of the HTTP requests in progress.
type requests struct {
	mu  sync.Mutex
	all map[string]bool
}

func (h *requests) add(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.all[id]:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "a request with the id %s is in progress", id)
	case len(h.all) >= maxHTTP:
		return jsonrpc.Errorf(jsonrpc.CodeInternal, "more than %d HTTP requests in progress", maxHTTP)
	}
	if h.all == nil {
		h.all = make(map[string]bool)
	}
	h.all[id] = true
	return nil
}

func (h *requests) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, id)
}

// parseHTTP decodes a call of http/request.
func (c *conn) parseHTTP(m *jsonrpc.Message) (*request, error) {
	p, err := protocol.ParseHTTP(m.Params)
	return &request{run: func(ctx context.Context, r *request) (any, error) { return c.requestHTTP(ctx, r, &p) }}, err
}

// requestHTTP serves http/request.
func (c *conn) requestHTTP(ctx context.Context, r *request, p *protocol.HTTPParams) (any, error) {
	if c.services.HTTP == nil {
		return nil, notOffered(protocol.HTTPRequest)
	}
	if err := c.setHeaders(ctx, p); err != nil {
		return nil, err
	}
	if err := c.http.add(p.RequestID); err != nil {
		return nil, err
	}
	timeout := maxTimeout
	if p.TimeoutMS != nil {
		timeout = time.Duration(min(*p.TimeoutMS, uint64(maxTimeout/time.Millisecond))) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	over := func() {
		cancel()
		c.http.remove(p.RequestID)
	}
	resp, err := c.services.HTTP.Do(ctx, p)
	if err != nil {
		over()
		if kind.Is(err, kind.Invalid) {
			return nil, err
		}
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "http/request failed: %s", kind.Message(err))
	}
	out := protocol.HTTPResponse{Status: resp.Status, Headers: resp.Headers, Body: []byte{}}
	if out.Headers == nil {
		out.Headers = []protocol.Header{}
	}
	if p.Stream {
		r.after = func() {
			c.spawn("codex http", func() {
				defer over()
				c.streamBody(ctx, p.RequestID, resp.Body)
			})
		}
		return out, nil
	}
	defer over()
	defer resp.Body.Close()
	if err := c.takeLarge(ctx, r); err != nil {
		return nil, err
	}
	out.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "http/request failed: %s", kind.Message(err))
	case len(out.Body) > maxBody:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the body has more than %d bytes; use streamResponse", maxBody)
	}
	return out, nil
}

// setHeaders sets the headers whose values are variables of the sandbox.
func (c *conn) setHeaders(ctx context.Context, p *protocol.HTTPParams) error {
	var vars map[string]string
	for i := range p.Headers {
		name := p.Headers[i].ValueEnvVar
		if name == nil {
			continue
		}
		if vars == nil {
			var err error
			if _, vars, err = c.services.Environment.Describe(ctx); err != nil {
				return err
			}
		}
		value, ok := vars[*name]
		if !ok {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the variable %s is not set in the sandbox", *name)
		}
		p.Headers[i].Value = value
	}
	return nil
}

// streamBody sends a body as notifications. The next piece is read once the previous one was
// written.
func (c *conn) streamBody(ctx context.Context, id string, body io.ReadCloser) {
	defer body.Close()
	buf := make([]byte, deltaSize)
	for seq := uint64(1); ; seq++ {
		n, err := io.ReadAtLeast(body, buf, 1)
		d := protocol.BodyDelta{RequestID: id, Seq: seq, Delta: buf[:n], Done: err != nil}
		if err != nil && !errors.Is(err, io.EOF) {
			text := kind.Message(err)
			if ctx.Err() != nil {
				text = "the request timed out"
			}
			d.Error = &text
		}
		raw, failed := json.Marshal(d)
		if failed != nil || c.out.send(jsonrpc.AppendNotification(nil, protocol.NoteBodyDelta, raw)) != nil || err != nil {
			return
		}
	}
}
