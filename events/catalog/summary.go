package catalog

import (
	"context"

	"github.com/millrace/millrace/events/internal/proctable"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// PutSummary replaces a process's entry in the catalog, whose stream sequence is rev (0:
// no entry yet). It returns Conflict like AppendSandbox.
func (d *Documents) PutSummary(ctx context.Context, s *process.Summary, rev uint64) (uint64, error) {
	return proctable.Put(ctx, d.conn, s, rev)
}

// Summary reads a process's entry in the catalog from the leader, and its rev for
// PutSummary. It returns NotFound if the entry does not exist.
func (d *Documents) Summary(ctx context.Context, ref record.Ref) (process.Summary, uint64, error) {
	return proctable.Read(ctx, d.conn, ref.Host, ref.ID)
}
