package conversations

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// readyTimeout limits the time until a runtime accepts clients.
const readyTimeout = 20 * time.Second

// startRuntime starts the runtime of a conversation, or finds the one that a gateway started before, and
// returns when it accepts clients.
func (cs *Conversations) startRuntime(ctx context.Context, p core.Principal, c *conversation.State, cfg bootstrap.Config) (process.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var id process.ID
	for i, spec := range bootstrap.Start(cfg, c.Token.Nonce) {
		var src stream.Source
		var err error
		id, src, err = cs.cfg.Processes.Start(ctx, p, c.Sandbox, spec, procs.StartOptions{IdempotencyKey: bootstrap.Tag + " " + strconv.Itoa(i)})
		if err != nil {
			return id, err
		}
		until := exited
		if spec.Stdin {
			until = ready()
		}
		err = await(ctx, src, until)
		src.Close()
		if err != nil {
			return id, kind.Wrap(kind.Unavailable, "start runtime", string(id), err)
		}
	}
	return id, nil
}

var errRuntime = errors.New("the runtime ended before it was ready")

// await reads a record until done returns true or an error.
func await(ctx context.Context, src stream.Source, done func(process.Body) (bool, error)) error {
	for {
		batch, err := src.Next(ctx, readyTimeout)
		for i := range batch {
			if ok, err := done(batch[i].Body); ok || err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return errRuntime
		case err != nil:
			return err
		case len(batch) == 0:
			return context.DeadlineExceeded
		}
	}
}

// exited accepts the end of a process that did what it was started for.
func exited(b process.Body) (bool, error) {
	f, ok := b.(process.Finished)
	if ok && !f.Exit.OK() {
		return false, errRuntime
	}
	return ok, nil
}

// ready accepts the frame of a runtime that accepts clients.
func ready() func(process.Body) (bool, error) {
	dec := frame.NewDecoder(frame.MaxFromRuntime)
	return func(b process.Body) (bool, error) {
		if _, ended := b.(process.Finished); ended {
			return false, errRuntime
		}
		out, ok := b.(process.Wrote)
		if !ok || out.Stream != process.Stdout {
			return false, nil
		}
		for f, err := range dec.Feed(out.Data) {
			if err != nil || f.Kind != frame.Control {
				continue
			}
			if m, err := frame.ParseMessage(f.Payload); err == nil && m.Ready != nil {
				return true, nil
			}
		}
		return false, nil
	}
}
