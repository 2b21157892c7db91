package interpreter

import (
	"context"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// awaited is the record of an execution for as long as its client waits for it. When the
// client leaves, the execution is told so: it goes on, but no longer keeps the next one
// of its context waiting, which E2B's never does (WIRE-E2B 3.5).
type awaited struct {
	stream.Source
	h   *Handler
	who core.Principal
	id  process.ID

	listens bool // its process has said something, and minds signals from then on
	over    bool
}

// patience bounds how long a process is waited for that is to be told something.
const patience = 10 * time.Second

// Next is the record's.
func (a *awaited) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := a.Source.Next(ctx, idle)
	for i := range batch {
		switch batch[i].Body.(type) {
		case process.Wrote:
			a.listens = true
		case process.Finished:
			a.over = true
		default:
			// Nothing of it matters here.
		}
	}
	return batch, err
}

// Close lets go of the record, and tells the execution.
func (a *awaited) Close() {
	if !a.over && !a.h.streams.Draining() { // the clients of a gateway that goes away come back
		a.forget()
	}
	a.Source.Close()
}

func (a *awaited) forget() {
	// Its request, whose context this would be, is over.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !a.listens && !a.over {
		if _, err := a.Next(ctx, 0); err != nil {
			return
		}
	}
	if !a.over {
		_ = a.h.core.Signal(ctx, a.who, a.id, int32(syscall.SIGURG)) // what has ended meanwhile keeps nobody waiting
	}
}
