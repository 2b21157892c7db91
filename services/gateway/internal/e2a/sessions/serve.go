package sessions

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/conversations"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

const (
	checkInterval = 200 * time.Millisecond
	answerTimeout = 15 * time.Second // of a runtime, to an attachment
)

// serve serves a connection until it is closed.
func (h *Handler) serve(ctx context.Context, conn *websocket.Conn, id conversation.ID, at position, url string) {
	cl, err := h.cfg.Conversations.Attach(ctx, id)
	if err != nil {
		h.lost(ctx, conn, id, err)
		return
	}
	defer cl.Close()
	src, err := cl.Open(ctx, !at.given)
	if err == nil {
		defer src.Close()
		err = cl.Announce(ctx, url)
	}
	if err != nil {
		h.lost(ctx, conn, id, err)
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait() // before the client is detached
	defer cancel(nil)
	enc := newEncoder(cl.ID(), cl.Generation(), at)
	run := func(what string, do func() error) {
		wg.Go(func() { recovery.Do(h.cfg.Slog, what, do) }) //nolint:errcheck // logged
	}
	run("session input", func() error {
		h.inputs(ctx, conn, cl)
		cancel(nil)
		return nil
	})
	run("session watch", func() error {
		h.watch(ctx, conn, cl, enc.answered)
		return nil
	})
	err = stream.Copy(ctx, conn, src, enc)
	switch {
	case kind.Is(context.Cause(ctx), kind.Unavailable):
		conn.Close(websocket.GoingAway, shuttingDown)
	case err == nil && ctx.Err() == nil: // the runtime has ended
		h.ended(ctx, conn, cl)
	default:
		conn.Close(websocket.Fault, unreachable) // unless it is closed; the input then ends
	}
}

// lost closes a connection for which there is no runtime.
func (h *Handler) lost(ctx context.Context, conn *websocket.Conn, id conversation.ID, err error) {
	if ctx.Err() != nil {
		return
	}
	h.cfg.Slog.Info("attach client failed", "session", id, "err", err)
	conn.Close(websocket.Fault, unreachable)
}

// ended closes a connection whose runtime has ended.
func (h *Handler) ended(ctx context.Context, conn *websocket.Conn, cl *conversations.Client) {
	if cl.Ended(ctx) == conversations.Destroyed {
		conn.Close(websocket.GoingAway, destroyed)
		return
	}
	conn.Close(websocket.Fault, unreachable)
}

// inputs passes messages of the client to the runtime until the connection ends.
func (h *Handler) inputs(ctx context.Context, conn *websocket.Conn, cl *conversations.Client) {
	for {
		m, err := conn.Read()
		if err != nil {
			return
		}
		if m.Type != websocket.Text {
			m.Release()
			conn.Close(websocket.Unsupported, noBinary)
			continue // until the client has closed it
		}
		err = cl.Send(ctx, m.Data)
		m.Release()
		if err == nil || ctx.Err() != nil {
			continue
		}
		h.cfg.Slog.Info("send message to runtime failed", "attachment", cl.ID(), "err", err)
		h.ended(ctx, conn, cl)
	}
}

// watch closes the connection when it has to end, and sends announcements.
func (h *Handler) watch(ctx context.Context, conn *websocket.Conn, cl *conversations.Client, answered <-chan struct{}) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-answered:
			late.Stop()
			answered = nil
		case <-late.C:
			conn.Close(websocket.Fault, unreachable)
			return
		case <-tick.C:
		}
		switch s, reason := cl.Check(); {
		case s == conversations.Destroyed:
			conn.Close(websocket.GoingAway, destroyed)
			return
		case s == conversations.Replaced:
			conn.Close(websocket.Fault, replaced)
			return
		case reason != "":
			if conn.Write(websocket.Text, appendCancel(nil, reason)) == nil {
				cl.Delivered(ctx)
			}
		}
		if keys := cl.Configured(); len(keys) > 0 {
			_ = conn.Write(websocket.Text, appendUpdate(nil, keys)) // the connection ends by itself
		}
	}
}
