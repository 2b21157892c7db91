package catalog

import (
	"context"
	"crypto/rand"
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

const secretLen = 32

// Secret returns the cluster's secret of that name: 32 random bytes, created by the first
// caller and the same for all callers after it. name must be a literal in the program.
func (d *Documents) Secret(ctx context.Context, name string) ([]byte, error) {
	subject := "secret." + name
	fresh := make([]byte, secretLen)
	rand.Read(fresh)
	_, err := d.conn.Put(ctx, streams.Secrets, subject, 0, fresh)
	if err == nil {
		return fresh, nil
	}
	if !kind.Is(err, kind.Conflict) {
		return nil, err
	}
	m, ok, err := d.conn.LastOf(ctx, streams.Secrets, subject)
	if err != nil {
		return nil, err
	}
	if !ok || len(m.Data) != secretLen {
		return nil, kind.New(kind.Internal, "read secret", name, "the secret is damaged")
	}
	return m.Data, nil
}
