package events

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// put stores data as the next message of subject after the one with stream
// sequence rev, through outages until ctx ends. Conflict: somebody else wrote.
// Invalid: it is larger than a message may be.
func (l *Log) put(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	for try := 0; ; {
		once, cancel := l.oneAppend(ctx, subject)
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
		if !l.pause(ctx, &try) {
			return 0, unavailable("append", subject, err)
		}
	}
}

// putNew stores the record of something new: its subject is another one's only if that one is
// over. What is there its leader says: views forget what is over, and the log does later.
func (l *Log) putNew(ctx context.Context, stream, subject string, data []byte, over func(stored) bool) error {
	for {
		m, ok, err := l.lastOf(ctx, stream, subject)
		switch {
		case err != nil:
			return unavailable("append", subject, err)
		case ok && bytes.Equal(m.data, data):
			return nil // an earlier try's, whose answer was lost
		case ok && !over(m):
			return kind.New(kind.Conflict, "append", subject, "somebody else wrote first")
		}
		if _, err = l.put(ctx, stream, subject, m.seq, data); !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// resolve tells what became of a message whose expectation did not hold, from
// the leader: an earlier try was stored and its answer lost (its rev), somebody
// else wrote (Conflict), or neither (0). A message of ours can only be the next
// after rev; others may have followed it since.
func (l *Log) resolve(ctx context.Context, stream, subject string, rev uint64, data []byte) (uint64, error) {
	m, ok, err := l.getThrough(ctx, stream, getRequest{Seq: rev + 1, Next: subject})
	switch {
	case err != nil:
		return 0, err
	case ok && bytes.Equal(m.data, data):
		return m.seq, nil
	case !ok:
		// Nothing follows; what was expected may be gone too.
		if m, _, err = l.lastOf(ctx, stream, subject); err != nil || m.seq == rev {
			return 0, err
		}
	}
	return 0, kind.New(kind.Conflict, "append", subject, "somebody else wrote first")
}

// AppendSandbox stores facts of a sandbox's record, all or none. rev is the
// stream sequence of the record's last message, 0 for a new record; firstSeq is
// the seq of bodies[0]. It gives the new rev, or an error of kind.Conflict if
// somebody else wrote first. It retries through outages until ctx ends.
func (l *Log) AppendSandbox(ctx context.Context, tenant string, id sandbox.ID, rev, firstSeq uint64, bodies ...sandbox.Body) (uint64, error) {
	data, err := encodeSandbox(tenant, id, firstSeq, time.Now(), bodies)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(id), err)
	}
	return l.put(ctx, streamSandboxes, sandboxSubject(tenant, id), rev, data)
}

// PutSummary stores a process's entry in the catalogue in place of the one with
// stream sequence rev (0: there is none). Conflict as in AppendSandbox.
func (l *Log) PutSummary(ctx context.Context, s *process.Summary, rev uint64) (uint64, error) {
	data, err := encodeSummary(s)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(s.ID), err)
	}
	return l.put(ctx, streamCatalogue, catalogueSubject(s.Host, s.ID), rev, data)
}

// Summary reads a process's entry in the catalogue, and its rev for PutSummary,
// from the leader. NotFound if there is none.
func (l *Log) Summary(ctx context.Context, ref Ref) (process.Summary, uint64, error) {
	m, ok, err := l.lastOf(ctx, streamCatalogue, catalogueSubject(ref.Host, ref.ID))
	if err != nil {
		return process.Summary{}, 0, err
	}
	if !ok {
		return process.Summary{}, 0, kind.New(kind.NotFound, "read", string(ref.ID), "the process is not in the catalogue")
	}
	s, err := decodeSummary(m.data)
	return s, m.seq, err
}

const secretLen = 32

// Secret gives the cluster's secret of that name: 32 random bytes, made by
// whoever asks first and the same for everybody after. name is a literal of the
// program's.
func (l *Log) Secret(ctx context.Context, name string) ([]byte, error) {
	subject := "secret." + name
	fresh := make([]byte, secretLen)
	rand.Read(fresh) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	_, err := l.put(ctx, streamSecrets, subject, 0, fresh)
	if err == nil {
		return fresh, nil
	}
	if !kind.Is(err, kind.Conflict) {
		return nil, err
	}
	m, ok, err := l.lastOf(ctx, streamSecrets, subject)
	if err != nil {
		return nil, err
	}
	if !ok || len(m.data) != secretLen {
		return nil, kind.New(kind.Internal, "read secret", name, "the secret is damaged")
	}
	return m.data, nil
}
