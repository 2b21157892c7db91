package events

import (
	"bytes"
	"context"
	"errors"

	"github.com/millrace/millrace/events/kind"
)

// put stores data as the next message of subject after the one with stream sequence rev. It
// retries through outages until ctx ends.
//
// It returns Conflict if another writer was first, Invalid if data exceeds the message size
// limit.
func (l *conn) put(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	for try := 0; ; {
		once, cancel := l.boundAppend(ctx, subject)
		got, err := l.publish(once, subject, rev, data)
		cancel()
		if err == nil || kind.Is(err, kind.Invalid) {
			return got, err
		}
		if err := l.unwritable(ctx, subject); err != nil {
			return 0, err
		}
		if errors.Is(err, errExpectation) {
			got, err := l.resolve(ctx, stream, subject, rev, data)
			if err != nil || got != 0 {
				return got, err
			}
		}
		if !l.backoff(ctx, &try) {
			return 0, unavailable("append", subject, err)
		}
	}
}

// putNew stores the first message of a new record. Its subject may hold an older record
// only if over reports that one as ended. The leader is asked, because views forget ended
// records before the log drops them.
func (l *conn) putNew(ctx context.Context, stream, subject string, data []byte, over func(stored) bool) error {
	for {
		m, ok, err := l.lastOf(ctx, stream, subject)
		switch {
		case err != nil:
			return unavailable("append", subject, err)
		case ok && bytes.Equal(m.data, data):
			return nil // stored by an earlier attempt whose ack was lost
		case ok && !over(m):
			return kind.New(kind.Conflict, "append", subject, "another writer was first")
		}
		if _, err = l.put(ctx, stream, subject, m.seq, data); !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// putLast stores data as the last message of subject, whatever the subject holds.
func (l *conn) putLast(ctx context.Context, stream, subject string, data []byte) error {
	for {
		m, _, err := l.lastOf(ctx, stream, subject)
		if err != nil {
			return err
		}
		if _, err = l.put(ctx, stream, subject, m.seq, data); !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// resolve asks the leader why the expectation of a message did not hold. An earlier attempt
// was stored and its ack lost (returns its rev), another writer was first (Conflict), or
// neither (0). Our message can only be the next one after rev; others may have followed it
// since.
func (l *conn) resolve(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	m, ok, err := l.retryLeaderGet(ctx, stream, getRequest{Seq: rev + 1, Next: subject})
	switch {
	case err != nil:
		return 0, err
	case ok && bytes.Equal(m.data, data):
		return m.seq, nil
	case !ok:
		// Nothing follows; the expected message may have been dropped too.
		if m, _, err = l.lastOf(ctx, stream, subject); err != nil || m.seq == rev {
			return 0, err
		}
	}
	return 0, kind.New(kind.Conflict, "append", subject, "another writer was first")
}
