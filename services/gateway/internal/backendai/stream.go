package backendai

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

const (
	flushWait = 200 * time.Millisecond // time between two results on a connection
	quietWait = 2 * time.Second        // the same while there is no output
	// signalTimeout limits the time to interrupt the run of a client that has disconnected.
	signalTimeout = 10 * time.Second
)

// streamed serves a run on a WebSocket connection.
func (h *Handler) streamed(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	return h.endpoint.Upgrade(c, p.Tenant, websocket.Handler{
		Drain: websocket.LeaveToServe,
		Serve: func(ctx context.Context, conn *websocket.Conn) error {
			r := &connection{h: h, p: p, st: st, conn: conn}
			if err := r.serve(ctx); err != nil {
				r.fail(ctx, err)
			}
			return nil
		},
	})
}

// connection is a WebSocket connection with one run.
type connection struct {
	h    *Handler
	p    core.Principal
	st   sandbox.State
	conn *websocket.Conn
}

// serve starts the run that the first message describes, and sends its results.
func (r *connection) serve(ctx context.Context) error {
	m, err := r.conn.Read()
	if err != nil {
		return err
	}
	e, err := decodeExecution(m.Data)
	m.Release()
	if err != nil {
		return err
	}
	if e.Mode != "query" && e.Mode != "batch" {
		return badParams("mode: must be query or batch")
	}
	id, src, err := r.start(ctx, &e)
	if err != nil {
		return err
	}
	f := run.Follow(src, run.Position{})
	defer f.Close()
	go recovery.Do(r.h.cfg.Slog, "input", func() error { return r.inputs(ctx, id) }) //nolint:errcheck // ends with the connection
	err = r.results(ctx, f)
	if err != nil && kind.Is(context.Cause(ctx), kind.Canceled) {
		r.abandon(id) // the client left while the run runs
	}
	return err
}

func (r *connection) start(ctx context.Context, e *execution) (process.ID, *queued, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if e.RunID == nil {
		id := newRunID()
		e.RunID = &id
	}
	return r.h.start(ctx, r.p, &r.st, e, procs.StartOptions{})
}

// results sends the results of a run up to its end.
func (r *connection) results(ctx context.Context, f *run.Follower) error {
	last := time.Now()
	for {
		got, err := f.Next(ctx, flushWait)
		if err != nil {
			return err
		}
		r.h.touch(ctx, r.p, &r.st)
		if got.Status == run.Continued && len(got.Console) == 0 && time.Since(last) < quietWait {
			continue
		}
		if err := r.send(got); err != nil {
			return err
		}
		if last = time.Now(); got.Status == run.Finished || got.Status == run.Timeout {
			r.conn.Close(websocket.Normal, "")
			return nil
		}
	}
}

// inputs sends the messages after the first one to the run, each as a line.
func (r *connection) inputs(ctx context.Context, id process.ID) error {
	for {
		m, err := r.conn.Read()
		if err != nil {
			return nil //nolint:nilerr // the connection has ended, which ctx reports
		}
		line := string(m.Data)
		m.Release()
		if err := r.h.input(ctx, r.p, id, line); err != nil && ctx.Err() == nil {
			r.fail(ctx, err)
			return nil
		}
	}
}

// abandon interrupts a run, as if the client had interrupted it.
func (r *connection) abandon(id process.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout) // that of the connection has ended
	defer cancel()
	if err := r.h.cfg.Operations.Signal(ctx, r.p, id, sigInterrupt); err != nil && !kind.Is(err, kind.NotFound) {
		r.h.cfg.Slog.Warn("interrupt run failed", "process", id, "err", err)
	}
}

func (r *connection) send(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.conn.Write(websocket.Text, raw)
}

// fail sends an error and closes the connection.
func (r *connection) fail(ctx context.Context, err error) {
	message := struct {
		Status string `json:"status"`
		Msg    string `json:"msg"`
	}{"error", kind.Message(err)}
	code := websocket.Normal
	if kind.Is(context.Cause(ctx), kind.Unavailable) {
		message.Status, message.Msg, code = "server-restarting", "the gateway is shutting down; reconnect", websocket.GoingAway
	}
	if r.send(message) == nil {
		r.conn.Close(code, "")
	}
}
