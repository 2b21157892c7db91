package catalog

import (
	"context"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// PutSummary replaces a process's entry in the catalog, whose stream sequence is rev (0:
// no entry yet). It returns Conflict like AppendSandbox.
func (d *Documents) PutSummary(ctx context.Context, s *process.Summary, rev uint64) (uint64, error) {
	data, err := codec.EncodeSummary(s)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(s.ID), err)
	}
	return d.conn.Put(ctx, streams.Catalog, catalogSubject(s.Host, s.ID), rev, data)
}

// Summary reads a process's entry in the catalog from the leader, and its rev for
// PutSummary. It returns NotFound if the entry does not exist.
func (d *Documents) Summary(ctx context.Context, ref record.Ref) (process.Summary, uint64, error) {
	m, ok, err := d.conn.LastOf(ctx, streams.Catalog, catalogSubject(ref.Host, ref.ID))
	if err != nil {
		return process.Summary{}, 0, err
	}
	if !ok {
		return process.Summary{}, 0, kind.New(kind.NotFound, "read", string(ref.ID), "the process is not in the catalog")
	}
	s, err := codec.DecodeSummary(m.Data)
	return s, m.Seq, err
}
