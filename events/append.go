package events

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
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

// AppendSandbox stores facts in a sandbox's record, all or none. rev is the stream sequence
// of the record's last message, 0 for a new record; firstSeq is the seq of bodies[0]. It
// returns the new rev, or an error of kind.Conflict if another writer was first. It retries
// through outages until ctx ends.
func (l *Log) AppendSandbox(ctx context.Context, tenant string, id sandbox.ID, rev, firstSeq uint64, bodies ...sandbox.Body) (uint64, error) {
	data, err := codec.EncodeSandbox(tenant, id, firstSeq, time.Now(), bodies)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(id), err)
	}
	return l.put(ctx, streams.Sandboxes, sandboxSubject(tenant, id), rev, data)
}

// PutSummary replaces a process's entry in the catalogue, whose stream sequence is rev (0:
// no entry yet). It returns Conflict like AppendSandbox.
func (l *records) PutSummary(ctx context.Context, s *process.Summary, rev uint64) (uint64, error) {
	data, err := codec.EncodeSummary(s)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(s.ID), err)
	}
	return l.put(ctx, streams.Catalogue, catalogueSubject(s.Host, s.ID), rev, data)
}

// Summary reads a process's entry in the catalogue from the leader, and its rev for
// PutSummary. It returns NotFound if the entry does not exist.
func (l *records) Summary(ctx context.Context, ref Ref) (process.Summary, uint64, error) {
	m, ok, err := l.lastOf(ctx, streams.Catalogue, catalogueSubject(ref.Host, ref.ID))
	if err != nil {
		return process.Summary{}, 0, err
	}
	if !ok {
		return process.Summary{}, 0, kind.New(kind.NotFound, "read", string(ref.ID), "the process is not in the catalogue")
	}
	s, err := codec.DecodeSummary(m.data)
	return s, m.seq, err
}

const secretLen = 32

// Secret returns the cluster's secret of that name: 32 random bytes, created by the first
// caller and the same for all callers after it. name must be a literal in the program.
func (l *Log) Secret(ctx context.Context, name string) ([]byte, error) {
	subject := "secret." + name
	fresh := make([]byte, secretLen)
	rand.Read(fresh) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	_, err := l.put(ctx, streams.Secrets, subject, 0, fresh)
	if err == nil {
		return fresh, nil
	}
	if !kind.Is(err, kind.Conflict) {
		return nil, err
	}
	m, ok, err := l.lastOf(ctx, streams.Secrets, subject)
	if err != nil {
		return nil, err
	}
	if !ok || len(m.data) != secretLen {
		return nil, kind.New(kind.Internal, "read secret", name, "the secret is damaged")
	}
	return m.data, nil
}
