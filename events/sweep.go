package events

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// SweepSandboxes removes the records of sandboxes that ended, and to which nothing came
// for thirty days, and gives their number. However old a sandbox is that lives, or is
// paused, its record stays. Unavailable if the log cannot be read.
func (v *View) SweepSandboxes(ctx context.Context) (int, error) {
	n, err := v.sweepSandboxes(ctx, auditAge)
	return n, kind.Wrap(kind.Unavailable, "sweep", streamSandboxes, err)
}

// sweepSandboxes looks at what is old from the beginning of the stream on, where what is
// left of living sandboxes is all that it meets twice. The stream's last message stays: by
// it others know how far there is to read.
func (v *View) sweepSandboxes(ctx context.Context, age time.Duration) (n int, err error) {
	if err := v.Sync(ctx); err != nil {
		return 0, err
	}
	end, err := v.l.lastSeq(ctx, streamSandboxes)
	if err != nil {
		return 0, err
	}
	s, err := v.l.js.Stream(ctx, streamSandboxes)
	if err != nil {
		return 0, err
	}
	for seq := uint64(1); ; {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject("sbx.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && time.Since(m.Time) < age {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		seq = m.Sequence + 1
		if v.lives(m.Subject) {
			continue
		}
		last, err := s.GetLastMsgForSubject(ctx, m.Subject)
		if err == nil && time.Since(last.Time) >= age && last.Sequence < end {
			err = s.Purge(ctx, jetstream.WithPurgeSubject(m.Subject))
			n++
		}
		if err != nil {
			return n, err
		}
	}
}

// lives reports whether the sandbox of a subject is not over. One that the view has
// forgotten is: see forget.
func (v *View) lives(subject string) bool {
	s, ok := v.Sandbox(sandbox.ID(subject[strings.LastIndexByte(subject, '.')+1:]))
	return ok && !s.Over()
}
