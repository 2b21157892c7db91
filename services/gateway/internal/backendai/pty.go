package backendai

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/backendai/terminal"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// terminalTag is the tag of the process of a session's terminal, of which one is active at most.
const terminalTag = "terminal"

// shell is the script of that process.
const shell = "if command -v bash >/dev/null 2>&1; then exec bash -l; fi; exec sh -l"

// pty serves a terminal.
func (h *Handler) pty(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	if app := c.Query("app"); app != "" {
		if _, err := session.Service(&st, app); err != nil {
			return err
		}
	}
	return h.endpoint.Upgrade(c, p.Tenant, websocket.Handler{
		Serve: func(ctx context.Context, conn *websocket.Conn) error {
			v := &viewer{h: h, p: p, box: st.ID, st: st, conn: conn, changed: make(chan struct{})}
			err := v.serve(ctx)
			if err != nil && ctx.Err() == nil && conn.Write(websocket.Text, terminal.Error(kind.Message(err))) == nil {
				conn.Close(websocket.Normal, "")
			}
			return nil
		},
	})
}

// viewer is a client of a terminal. Its session may have any number of them.
type viewer struct {
	h    *Handler
	p    core.Principal
	box  sandbox.ID // of the session
	conn *websocket.Conn

	mu        sync.Mutex
	st        sandbox.State // of the session
	current   process.ID    // process that is shown
	changed   chan struct{} // closed when current changes
	restarted process.ID    // process that the client has restarted
}

// soon is the life of a shell after which the next one is started at once.
const soon = time.Second

// serve shows the terminal until the session ends or the client leaves. When the shell ends it is
// started again.
func (v *viewer) serve(ctx context.Context) error {
	go recovery.Do(v.h.cfg.Slog, "terminal input", func() error { return v.inputs(ctx) }) //nolint:errcheck // ends with the connection
	for {
		begun := time.Now()
		exit, err := v.show(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case kind.Is(err, kind.NotFound), exit != nil && exit.Cause == process.CauseSandboxGone:
			return nil // the session has ended
		case err != nil:
			return err
		case exit.Cause == process.CauseNotStarted:
			return kind.New(kind.Unavailable, "terminal", "", "the terminal cannot be started")
		}
		if err := v.out([]byte("Restarting...\r\n")); err != nil {
			return err
		}
		if time.Since(begun) < soon {
			select {
			case <-time.After(soon):
			case <-ctx.Done():
			}
		}
	}
}

func (v *viewer) out(data []byte) error {
	return v.conn.Write(websocket.Text, terminal.AppendOut(nil, data))
}

// show shows the terminal's process to its end, and returns how it ended.
func (v *viewer) show(ctx context.Context) (*process.Exit, error) {
	id, err := v.process(ctx)
	if err != nil {
		return nil, err
	}
	v.setCurrent(id)
	src, history, exit, err := v.history(ctx, id)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	replay, filter := terminal.Replay(history)
	if len(replay) > 0 {
		if err := v.out(replay); err != nil {
			return nil, err
		}
	}
	if exit != nil {
		return exit, nil
	}
	enc := terminal.NewEncoder(filter, func() { v.touch(ctx) })
	if err := stream.Copy(ctx, v.conn, src, enc); err != nil {
		return nil, err
	}
	if enc.Exit() == nil {
		return nil, kind.New(kind.Unavailable, "terminal", string(id), "the record of the terminal cannot be read")
	}
	return enc.Exit(), nil
}

func (v *viewer) setCurrent(id process.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != id {
		v.current = id
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

// after waits until a process other than id is shown, and returns it; "": ctx has ended.
func (v *viewer) after(ctx context.Context, id process.ID) process.ID {
	for {
		v.mu.Lock()
		current, changed := v.current, v.changed
		v.mu.Unlock()
		if current != id {
			return current
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ""
		}
	}
}

// process returns the process of the session's terminal, which it starts if there is none. Any
// number of gateways start one.
func (v *viewer) process(ctx context.Context) (process.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, record.CallTimeout)
	defer cancel()
	all, err := v.h.cfg.Operations.Processes(ctx, v.p, v.box, func(s *process.Summary) bool {
		return s.Spec.Tag != nil && *s.Spec.Tag == terminalTag
	})
	if err != nil {
		return "", err
	}
	if n := len(all); n > 0 && all[n-1].Active() {
		return all[n-1].ID, nil
	}
	tag := terminalTag
	id, src, err := v.h.cfg.Operations.Start(ctx, v.p, v.box, process.Spec{
		Cmd: "/bin/sh", Args: []string{"-c", shell}, PTY: &process.Size{Cols: 80, Rows: 24},
		Env: map[string]string{"TERM": "xterm-256color"}, Tag: &tag, Helper: true,
	}, procs.StartOptions{IdempotencyKey: fmt.Sprintf("%s %d", terminalTag, len(all))})
	if err != nil {
		return "", err
	}
	src.Close()
	return id, nil
}
