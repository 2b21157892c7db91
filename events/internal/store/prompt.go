package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

type promptKey struct{}

// Prompt returns a context for requests of clients. If the servers report a stream as not
// writable, for example because a disk is full, an append is tried once more and then fails
// with kind.Unavailable and the reason. Without Prompt, an append waits until ctx ends. It
// has an effect only on a connection whose Monitor runs.
func Prompt(ctx context.Context) context.Context { return context.WithValue(ctx, promptKey{}, true) }

// promptAttempt bounds one append to a blocked stream.
const promptAttempt = time.Second

// unwritable returns why nothing can be stored under a subject; nil if it can be, or if ctx
// does not belong to a client's request.
func (l *Conn) unwritable(ctx context.Context, subject string) error {
	if ctx.Value(promptKey{}) == nil {
		return nil
	}
	if why := l.Monitor.blocks(streams.Of(subject), time.Now()); why != "" {
		msg := "the NATS servers cannot store anything right now"
		if strings.Contains(why, "no space left") {
			msg = "the disk of the NATS servers has no space left"
		}
		return &kind.Error{Op: "append", ID: subject, Kind: kind.Unavailable, Msg: msg, Err: errors.New(why)}
	}
	return nil
}

// boundAppend bounds the next append if the stream is known to be blocked.
func (l *Conn) boundAppend(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	if l.unwritable(ctx, subject) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, promptAttempt)
}

// blocks returns why a stream cannot be written, as found by the last check or as reported
// since by the only server.
func (m *Monitor) blocks(stream string, now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.health {
		if m.health[i].Stream == stream && m.health[i].Blocked != "" {
			return m.health[i].Blocked
		}
	}
	if len(m.reports) != 1 {
		return ""
	}
	for _, r := range m.reports {
		for _, p := range r.problems {
			if p.Stream == stream && now.Sub(r.at) <= reportAge {
				return p.Error
			}
		}
	}
	return ""
}
