package interpreter

import (
	"context"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// clientSource is the record of an execution while its client is connected. When the client
// disconnects, the execution gets a signal: it continues, but no longer blocks the next one
// of its context, which it never does at E2B either.
type clientSource struct {
	stream.Source
	h         *Handler
	principal core.Principal
	id        process.ID

	handlesSignals bool // its process has printed something, and handles signals from then on
	over           bool
}

// signalTimeout limits how long a process is waited for before it is signaled.
const signalTimeout = 10 * time.Second

// Next implements stream.Source.
func (a *clientSource) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := a.Source.Next(ctx, idle)
	for i := range batch {
		switch batch[i].Body.(type) {
		case process.Wrote:
			a.handlesSignals = true
		case process.Finished:
			a.over = true
		default:
			// Not needed here.
		}
	}
	return batch, err
}

// Close releases the record, and signals an unfinished execution.
func (a *clientSource) Close() {
	if !a.over && !a.h.streams.Draining() { // during a drain the client reconnects
		a.abandon()
	}
	a.Source.Close()
}

func (a *clientSource) abandon() {
	// The request and its context have ended.
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	for !a.handlesSignals && !a.over {
		if _, err := a.Next(ctx, 0); err != nil {
			return
		}
	}
	if !a.over {
		_ = a.h.core.Signal(ctx, a.principal, a.id, int32(syscall.SIGURG)) // an execution that has ended blocks no other
	}
}
