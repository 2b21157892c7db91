package store

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream removes old messages of a stream, and reads them for that from any replica.
type Stream struct{ s jetstream.Stream }

// Stream returns a stream.
func (l *Conn) Stream(ctx context.Context, name string) (Stream, error) {
	s, err := l.js.Stream(ctx, name)
	return Stream{s}, err
}

// FirstSeq returns the stream sequence of the first message, as of the call that returned
// the Stream.
func (s Stream) FirstSeq() uint64 { return s.s.CachedInfo().State.FirstSeq }

// Extent returns the stream sequence of the last message, zero if the stream is empty, and how many messages
// are missing between the first and the last one, as of the call that returned the Stream.
func (s Stream) Extent() (last, missing uint64) {
	st := s.s.CachedInfo().State
	if st.Msgs == 0 {
		return 0, 0
	}
	return st.LastSeq, st.LastSeq - st.FirstSeq + 1 - st.Msgs
}

// Next reads the first message of a subject, which may have wildcards, at or after a stream
// sequence. ok is false if there is none.
func (s Stream) Next(ctx context.Context, subject string, seq uint64) (m Message, ok bool, err error) {
	return found(s.s.GetMsg(ctx, max(seq, 1), jetstream.WithGetMsgSubject(subject)))
}

// Last reads the last message of a subject. ok is false if there is none.
func (s Stream) Last(ctx context.Context, subject string) (m Message, ok bool, err error) {
	return found(s.s.GetLastMsgForSubject(ctx, subject))
}

// Subjects returns the subjects that have messages and match one with wildcards.
func (s Stream) Subjects(ctx context.Context, filter string) ([]string, error) {
	info, err := s.s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(info.State.Subjects)), nil
}

func found(m *jetstream.RawStreamMsg, err error) (Message, bool, error) {
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Message{}, false, nil
	case err != nil:
		return Message{}, false, err
	}
	return Message{Subject: m.Subject, Seq: m.Sequence, Time: m.Time, Data: m.Data, After: unconditional}, true, nil
}

// Purge removes the messages of a subject before a stream sequence.
func (s Stream) Purge(ctx context.Context, subject string, before uint64) error {
	return s.s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(before))
}

// PurgeAll removes all messages of a subject, which may have wildcards.
func (s Stream) PurgeAll(ctx context.Context, subject string) error {
	return s.s.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// PurgeButLast removes all messages of a subject except the last.
func (s Stream) PurgeButLast(ctx context.Context, subject string) error {
	return s.s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(1))
}

// PurgeBefore removes all messages before a stream sequence.
func (s Stream) PurgeBefore(ctx context.Context, before uint64) error {
	return s.s.Purge(ctx, jetstream.WithPurgeSequence(before))
}
