package backendai

import (
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/backendai/terminal"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// inputs handles the messages of the client until it leaves. A message that cannot be handled is
// answered with an error.
func (v *viewer) inputs(ctx context.Context) error {
	select {
	case <-v.started: // input that arrives before waits in the connection
	case <-ctx.Done():
		return nil
	}
	for {
		raw, err := v.conn.Read()
		if err != nil {
			return nil //nolint:nilerr // the connection has ended, which ctx reports
		}
		m, err := terminal.Parse(raw.Data)
		raw.Release()
		if err == nil {
			err = v.input(ctx, &m)
		}
		if err != nil && ctx.Err() == nil {
			v.conn.Write(websocket.Text, terminal.Error(kind.Message(err))) //nolint:errcheck // the next Read fails
		}
	}
}

// input handles a message. Input for a shell that has just ended is dropped.
func (v *viewer) input(ctx context.Context, m *terminal.Message) error {
	v.touch(ctx)
	v.mu.Lock()
	id := v.current
	v.mu.Unlock()
	var err error
	switch m.Type {
	case terminal.Stdin:
		err = v.h.cfg.Operations.SendInput(ctx, v.p, id, m.Chars, false)
	case terminal.Resize:
		err = v.h.cfg.Operations.Resize(ctx, v.p, id, m.Size)
	case terminal.Restart:
		err = v.restart(ctx)
	}
	if kind.Is(err, kind.NotFound) {
		return nil
	}
	return err
}

// restart restarts the session. A client that repeats it meanwhile restarts it once.
func (v *viewer) restart(ctx context.Context) error {
	v.mu.Lock()
	again := v.restarted == v.current
	v.restarted = v.current
	v.mu.Unlock()
	if again {
		return nil
	}
	return v.h.endProcesses(ctx, v.p, v.st.ID)
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
