package backendai

import (
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/backendai/terminal"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// inputs handles the messages of the client until it leaves. A message that cannot be handled is
// answered with an error.
func (v *viewer) inputs(ctx context.Context) error {
	id := v.after(ctx, "") // input that arrives before waits in the connection
	for ctx.Err() == nil {
		raw, err := v.conn.Read()
		if err != nil {
			return nil //nolint:nilerr // the connection has ended, which ctx reports
		}
		m, err := terminal.Parse(raw.Data)
		raw.Release()
		if err == nil {
			id, err = v.input(ctx, id, &m)
		}
		if err != nil && ctx.Err() == nil {
			v.conn.Write(websocket.Text, terminal.Error(kind.Message(err))) //nolint:errcheck // the next Read fails
		}
	}
	return nil
}

// input handles a message for a process, and returns the process that has it. Input for a shell
// that has ended is for the next one.
func (v *viewer) input(ctx context.Context, id process.ID, m *terminal.Message) (process.ID, error) {
	v.touch(ctx)
	for {
		var err error
		switch m.Type {
		case terminal.Stdin:
			err = v.h.cfg.Operations.SendInput(ctx, v.p, id, m.Chars, false)
		case terminal.Resize:
			err = v.h.cfg.Operations.Resize(ctx, v.p, id, m.Size)
		case terminal.Restart:
			return id, v.restart(ctx)
		}
		if !kind.Is(err, kind.NotFound) || ctx.Err() != nil {
			return id, err
		}
		id = v.after(ctx, id)
	}
}

// restart restarts the session. A client that repeats it meanwhile restarts it once, unless the
// first attempt failed.
func (v *viewer) restart(ctx context.Context) error {
	v.mu.Lock()
	again := v.restarted == v.current
	v.restarted = v.current
	v.mu.Unlock()
	if again {
		return nil
	}
	_, err := v.h.endProcesses(ctx, v.p, v.box)
	if err != nil {
		v.mu.Lock()
		v.restarted = ""
		v.mu.Unlock()
	}
	return err
}

// touch keeps the session from ending for being idle.
func (v *viewer) touch(ctx context.Context) {
	v.mu.Lock()
	st := v.st
	v.mu.Unlock()
	v.h.touch(ctx, v.p, &st)
	v.mu.Lock()
	v.st = st
	v.mu.Unlock()
}
