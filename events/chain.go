package events

import (
	"context"
	"slices"
)

// The messages of a record are a chain: each is stored under the condition that
// another one is the record's last, and that condition is stored with it. So a
// record that is quiet among busy ones is read backwards, each message by its
// stream sequence. Asked for the next message of a subject instead, the store
// walks over all that others wrote since, and serves nobody else of the same
// connection meanwhile.

const (
	// chainLen is how many events of a sparse record are read at once: each
	// message is a request of its own, and the first is wanted soon.
	chainLen = 64
	// sparseFrom is how many messages of others must lie between two of a record
	// for the chain to be the faster way.
	sparseFrom = 64
	// sinceLen is how many messages are little.
	sinceLen = 8
)

// sparse reports whether few of the messages between two places of a record are
// its own.
func sparse(from, to place) bool {
	return to.rev > from.rev && to.seq > from.seq && (to.rev-from.rev)/(to.seq-from.seq) > sparseFrom
}

// readSparse reads the messages of a record after one place and up to another,
// or the first of them. whole is false where there is a hole among them.
func (l *Log) readSparse(ctx context.Context, stream, subject string, from, to place) (out []stored, whole bool, err error) {
	rev := to.rev
	if to.seq-from.seq > chainLen {
		if rev, err = l.seek(ctx, stream, subject, from.seq+chainLen); err != nil {
			return nil, false, err
		}
	}
	got, err := l.directGet(ctx, stream, getRequest{Seq: rev})
	if err != nil || len(got) == 0 || got[0].subject != subject {
		return nil, false, err
	}
	return l.chain(ctx, stream, from.rev, got[0], chainLen)
}

// readSince reads what came after the message of a subject with stream sequence
// last; whole is false if that is much, or cannot be told so.
func (l *Log) readSince(ctx context.Context, stream, subject string, last uint64) (out []stored, whole bool, err error) {
	got, err := l.directGet(ctx, stream, getRequest{Last: subject})
	if err != nil || len(got) == 0 || got[0].seq <= last {
		return nil, err == nil, err
	}
	return l.chain(ctx, stream, last, got[0], sinceLen)
}

// chain reads back from a message to the first after stream sequence from, at
// most so many, and gives them oldest first; of much output the older part. whole
// reports whether it came as far.
func (l *Log) chain(ctx context.Context, stream string, from uint64, m stored, most int) (out []stored, whole bool, err error) {
	for size := 0; ; most-- {
		out, size = append(out, m), size+len(m.data)
		for ; size > getBytes && len(out) > 1; out = out[1:] {
			size -= len(out[0].data) // what is newer is read again when it is its turn
		}
		switch {
		case m.after <= from:
			slices.Reverse(out)
			return out, true, nil
		case m.after >= m.seq || most == 1:
			return nil, false, nil
		}
		got, err := l.directGet(ctx, stream, getRequest{Seq: m.after})
		if err != nil || len(got) == 0 || got[0].subject != m.subject {
			return nil, false, err
		}
		m = got[0]
	}
}
