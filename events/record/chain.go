package record

import (
	"context"

	"github.com/millrace/millrace/events/internal/store"
)

const (
	// chainLen is how many events of a sparse record are read at once: each message takes
	// one request, and the first is needed soon.
	chainLen = 64
	// sparseFrom is how many messages of other records must lie between two of a record to
	// make the chain faster.
	sparseFrom = 64
)

// sparse reports whether few of the messages between two positions belong to the record.
func sparse(from, to position) bool {
	return to.rev > from.rev && to.seq > from.seq && (to.rev-from.rev)/(to.seq-from.seq) > sparseFrom
}

// readSparse reads the messages of a record after one position and up to another, or the
// first of them. whole is false if there is a hole among them.
func (l *Records) readSparse(ctx context.Context, stream, subject string, from, to position) (out []store.Message, whole bool, err error) {
	rev := to.rev
	if to.seq-from.seq > chainLen {
		if rev, err = l.seek(ctx, stream, subject, from.seq+chainLen); err != nil {
			return nil, false, err
		}
	}
	got, err := l.conn.DirectGet(ctx, stream, store.GetRequest{Seq: rev})
	if err != nil || len(got) == 0 || got[0].Subject != subject {
		return nil, false, err
	}
	return l.conn.Chain(ctx, stream, from.rev, got[0], chainLen)
}
