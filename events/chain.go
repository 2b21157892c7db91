package events

import (
	"context"
	"slices"
)

// The messages of a record form a chain: each is stored under the condition that a certain
// message is the record's last, and the condition is stored with it. So a quiet record
// among busy ones is read backwards, each message by its stream sequence. A request for the
// next message of a subject would make the store scan all messages of other records in
// between, and block other requests of the same connection meanwhile.

const (
	// chainLen is how many events of a sparse record are read at once: each message takes
	// one request, and the first is needed soon.
	chainLen = 64
	// sparseFrom is how many messages of other records must lie between two of a record to
	// make the chain faster.
	sparseFrom = 64
	// sinceLen is the most messages that readSince returns.
	sinceLen = 8
)

// sparse reports whether few of the messages between two positions belong to the record.
func sparse(from, to position) bool {
	return to.rev > from.rev && to.seq > from.seq && (to.rev-from.rev)/(to.seq-from.seq) > sparseFrom
}

// readSparse reads the messages of a record after one position and up to another, or the
// first of them. whole is false if there is a hole among them.
func (l *records) readSparse(ctx context.Context, stream, subject string, from, to position) (out []stored, whole bool, err error) {
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

// readSince reads the messages of a subject after stream sequence last. whole is false if
// there are many, or if that is unknown.
func (l *conn) readSince(ctx context.Context, stream, subject string, last uint64) (out []stored, whole bool, err error) {
	got, err := l.directGet(ctx, stream, getRequest{Last: subject})
	if err != nil || len(got) == 0 || got[0].seq <= last {
		return nil, err == nil, err
	}
	return l.chain(ctx, stream, last, got[0], sinceLen)
}

// chain reads backwards from a message to the first one after stream sequence from, at most
// the given number, and returns them oldest first; if they are large, only the older part.
// whole reports whether it reached from.
func (l *conn) chain(ctx context.Context, stream string, from uint64, m stored, most int) (out []stored, whole bool, err error) {
	for size := 0; ; most-- {
		out, size = append(out, m), size+len(m.data)
		for ; size > getBytes && len(out) > 1; out = out[1:] {
			size -= len(out[0].data) // newer messages are read again later
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
