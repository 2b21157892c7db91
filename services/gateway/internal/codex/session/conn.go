package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Config configures a connection. A zero field means its default.
type Config struct {
	Opener       Opener
	Budget       Budget // memory of large answers; nil: unlimited
	Requests     int    // maximum number of requests in flight; default 128
	RequestBytes int    // maximum size of the requests in flight together; default 32 MiB
	Retain       int    // bytes of output of a process that process/read returns, the newest; 0: all
	Log          *slog.Logger
}

const (
	defaultRequests     = 128
	defaultRequestBytes = 32 << 20
	// bulkAnswers is how many large answers exist at once.
	bulkAnswers = 2
	// describeTimeout limits the description of the sandbox in the answer of initialize, which
	// may lack it: the client then asks for it. The answer must come within a second.
	describeTimeout = 800 * time.Millisecond
)

// conn is a connection.
type conn struct {
	cfg    Config
	cancel context.CancelFunc
	out    *out
	gate   *gate
	lanes  lanes
	bulk   chan struct{}
	work   sync.WaitGroup

	state    protocol.State
	services *Services   // nil before initialize
	forget   func() bool // stops waiting for the loss of the attachment

	feeds   feeds
	handles handles
	watches atomic.Int32
	http    requests
}

// request is a request in flight.
type request struct {
	id    []byte
	size  int // bytes of the message
	turn  *turn
	run   func(ctx context.Context, r *request) (any, error)
	after func() // called once the answer was sent; may be nil
	large bool   // holds one of the large answers until it was sent
}

// answer is a complete message.
type answer []byte

// Serve serves a connection until the client leaves, the attachment is lost or ctx ends. It
// closes t, and returns when nothing of the connection runs any more.
func Serve(ctx context.Context, t Transport, cfg Config) error {
	if cfg.Requests <= 0 {
		cfg.Requests = defaultRequests
	}
	if cfg.RequestBytes <= 0 {
		cfg.RequestBytes = defaultRequestBytes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{cfg: cfg, cancel: cancel, gate: newGate(cfg.Requests, cfg.RequestBytes), bulk: make(chan struct{}, bulkAnswers)}
	c.out = &out{t: t, failed: func(error) { cancel() }}
	stop := context.AfterFunc(ctx, t.Close)
	defer stop()
	err := c.loop(ctx, t)
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		err = nil
	}
	cancel()
	t.Close()
	c.work.Wait()
	c.handles.closeAll()
	if c.services != nil {
		if c.forget != nil {
			c.forget()
		}
		c.services.Attachment.Detach()
	}
	return err
}

// loop reads messages. It returns nil after a message that ends the connection.
func (c *conn) loop(ctx context.Context, t Transport) error {
	for {
		raw, err := t.Read()
		if err != nil {
			return err
		}
		if err := c.take(ctx, raw); err != nil || c.state == protocol.StateClosed {
			return err
		}
	}
}

// take handles one message. Its error ends the connection.
func (c *conn) take(ctx context.Context, raw []byte) error {
	m, err := jsonrpc.Parse(raw)
	if err != nil {
		_, c.state = c.state.On(protocol.InputMalformed)
		return c.refuse(nil, err)
	}
	in, method := protocol.Classify(&m)
	var r *request
	var first protocol.InitializeParams
	switch in {
	case protocol.InputInitialize:
		first, err = protocol.ParseInitialize(m.Params)
	case protocol.InputCall:
		r, err = c.parse(method.Name, &m)
	default:
	}
	if err != nil { // released servers check parameters first
		return c.refuse(m.ID, err)
	}
	state := c.state
	action, next := state.On(in)
	c.state = next
	if refusal := state.Refusal(action, &m, method); refusal != nil {
		id := m.ID
		if action == protocol.Close {
			id = nil
		}
		return c.refuse(id, refusal)
	}
	switch {
	case action != protocol.Run:
		return nil
	case in == protocol.InputInitialize:
		return c.initialize(ctx, slices.Clone(m.ID), &first)
	}
	r.id, r.size = slices.Clone(m.ID), len(raw)
	return c.start(ctx, r)
}

// refuse sends an error.
func (c *conn) refuse(id []byte, err error) error {
	return c.out.send(jsonrpc.AppendError(nil, id, toError(err)))
}

// initialize opens the session. It runs before the next message is read.
func (c *conn) initialize(ctx context.Context, id []byte, p *protocol.InitializeParams) error {
	resume := ""
	if p.ResumeSessionID != nil {
		resume = *p.ResumeSessionID
	}
	s, err := c.cfg.Opener.Open(ctx, resume)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.refuse(id, openError(resume, err))
	}
	c.services = s
	c.state = c.state.Attached()
	c.feeds.resumed = s.Attachment.Resumed()
	result := protocol.Session{SessionID: s.Attachment.Session()}
	describe, cancel := context.WithTimeout(ctx, describeTimeout)
	info, err := c.describe(describe)
	cancel()
	if err == nil {
		result.EnvironmentInfo = &info
	} else {
		c.cfg.Log.Warn("describe sandbox failed", "err", err)
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if err := c.out.send(jsonrpc.AppendResult(nil, id, raw)); err != nil {
		return err
	}
	c.forget = s.Attachment.OnLost(c.cancel)
	if c.feeds.resumed {
		c.spawn("codex resume", func() { c.followUnread(ctx) })
	}
	return nil
}

// spawn runs f in a goroutine that Serve waits for.
func (c *conn) spawn(name string, f func()) {
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		err := recovery.Do(c.cfg.Log, name, func() error {
			f()
			return nil
		})
		if err != nil {
			c.cancel()
		}
	}()
}

// start runs a request once there is room for it.
func (c *conn) start(ctx context.Context, r *request) error {
	if err := c.gate.acquire(ctx, r.size); err != nil {
		return err
	}
	c.spawn("codex request", func() {
		defer c.gate.release(r.size)
		c.finish(ctx, r)
	})
	return nil
}

// finish runs a request and sends its answer.
func (c *conn) finish(ctx context.Context, r *request) {
	if r.turn != nil {
		defer r.turn.leave()
	}
	defer func() {
		if r.large {
			<-c.bulk
		}
	}()
	result, err := r.run(ctx, r)
	if r.turn != nil {
		r.turn.done()
		if await(ctx, r.turn.before) != nil {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	raw, isAnswer := result.(answer)
	switch {
	case err != nil:
		raw = jsonrpc.AppendError(nil, r.id, toError(err))
	case !isAnswer:
		if raw, err = encode(r.id, result); err != nil {
			raw = jsonrpc.AppendError(nil, r.id, toError(err))
		}
	}
	if c.out.send(raw) == nil && r.after != nil {
		r.after()
	}
}

// encode returns an answer with a result.
func encode(id []byte, result any) (answer, error) {
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	if len(raw)+len(id) > jsonrpc.MaxMessage-overhead {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the result has %d bytes, the limit is %d", len(raw), jsonrpc.MaxMessage)
	}
	return jsonrpc.AppendResult(nil, id, raw), nil
}

// overhead is more than an answer has around its id and its result.
const overhead = 64

// takeLarge waits until the request may have a large answer. The request must have its turn:
// otherwise those that hold the large answers could wait for one that holds none.
func (c *conn) takeLarge(ctx context.Context, r *request) error {
	if r.turn != nil {
		if err := await(ctx, r.turn.before); err != nil {
			return err
		}
	}
	select {
	case c.bulk <- struct{}{}:
		r.large = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// toError returns the error for the client.
func toError(err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e
	}
	code := jsonrpc.CodeInternal
	if kind.Is(err, kind.Invalid) {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: kind.Message(err)}
}

// openError returns the error of initialize.
func openError(resume string, err error) error {
	switch kind.Of(err) {
	case kind.NotFound, kind.Gone:
		if resume != "" {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "unknown session id %s", resume)
		}
	case kind.Conflict:
		return jsonrpc.Errorf(jsonrpc.CodeAttached, "session %s is already attached to another connection", resume)
	case kind.Unavailable, kind.Deadline:
		// Clients take any other code as final.
		return jsonrpc.Errorf(jsonrpc.CodeAttached, "the session cannot be attached yet: %s", kind.Message(err))
	default:
	}
	return err
}
