package catalog

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// AppendSandbox stores facts in a sandbox's record, all or none. rev is the stream sequence
// of the record's last message, 0 for a new record; firstSeq is the seq of bodies[0]. It
// returns the new rev, or an error of kind.Conflict if another writer was first. It retries
// through outages until ctx ends.
func (d *Documents) AppendSandbox(ctx context.Context, tenant string, id sandbox.ID, rev, firstSeq uint64, bodies ...sandbox.Body) (uint64, error) {
	data, err := codec.EncodeSandbox(tenant, id, firstSeq, time.Now(), bodies)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(id), err)
	}
	return d.conn.Put(ctx, streams.Sandboxes, sandboxSubject(tenant, id), rev, data)
}
