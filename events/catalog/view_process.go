package catalog

import (
	"context"
	"iter"
	"slices"

	"github.com/millrace/millrace/events/internal/proctable"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// processTable is the catalog of processes in a view.
type processTable struct{ table *proctable.Table }

// Process returns a process's entry in the catalog and its rev, for PutSummary.
func (p processTable) Process(id process.ID) (process.Summary, uint64, bool) { return p.table.Get(id) }

// AwaitProcess waits until the view has a process's entry, and returns it; or until ctx ends.
func (p processTable) AwaitProcess(ctx context.Context, id process.ID) (process.Summary, error) {
	return p.table.Await(ctx, id)
}

// Processes returns the entries of a sandbox ("": of all) for which keep is true, oldest
// first. It calls keep with the view unlocked.
func (p processTable) Processes(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	return p.table.List(sbx, keep)
}

// EndedProcess is a process that ended, and the stream sequence of its entry.
type EndedProcess = proctable.Ended

// EndedAfter returns the first processes that ended and whose entries have a stream sequence after rev, at
// most n, in that order. A reader that continues after the last one gets each process once.
func (p processTable) EndedAfter(rev uint64, n int) []EndedProcess { return p.table.EndedAfter(rev, n) }

// EndedSpan selects processes that ended.
type EndedSpan = proctable.Span

// EndedOn returns the processes of a span that ended on a host, in batches of at most a few thousand. The
// cost of others is small.
func (p processTable) EndedOn(host string, span EndedSpan) iter.Seq[[]process.Summary] {
	return p.table.EndedOn(host, span)
}

// ProcessesRev returns the stream sequence up to which the view has the catalog of processes.
func (p processTable) ProcessesRev() uint64 { return p.table.Rev() }

// FirstHelper returns the oldest process of a sandbox that the platform itself started with one of the tags.
// Clients cannot start one.
func (p processTable) FirstHelper(sbx sandbox.ID, tags ...string) (process.Summary, bool) {
	all := p.Processes(sbx, func(s *process.Summary) bool {
		return s.Spec.Helper && s.Spec.Tag != nil && slices.Contains(tags, *s.Spec.Tag)
	})
	if len(all) == 0 {
		return process.Summary{}, false
	}
	return all[0], true
}

// ActiveProcesses is Processes without those that ended. Its cost does not depend on them.
func (p processTable) ActiveProcesses(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	return p.table.Active(sbx, keep)
}

// ProcessPage returns a page of processes, newest first, and the cursor of the next page; zero:
// there is none.
func (p processTable) ProcessPage(q *process.Query) ([]process.Summary, process.ListCursor) {
	return p.table.Page(q)
}

// ProcessByPID returns the newest process of the sandbox with that pid.
func (p processTable) ProcessByPID(sbx sandbox.ID, pid uint32) (process.Summary, bool) {
	return p.table.ByPID(sbx, pid)
}

// Counts returns how many commands were started, by outcome (OutcomeActive: running). The
// sum is the number started (C-040 to C-042). It never shrinks: entries that retention
// drops were added to the stored totals before.
func (p processTable) Counts() map[process.Outcome]uint64 { return p.table.Counts() }

// SweepCatalog removes catalog entries older than the retention. Before that it adds
// entries of ended processes to the stored totals and stores entries of running processes
// again. It stores a snapshot of the processes from which views start. It may be called
// concurrently.
func (p processTable) SweepCatalog(ctx context.Context) error {
	err := p.table.Sweep(ctx)
	if saveErr := p.table.SaveSnapshot(ctx); err == nil {
		err = saveErr
	}
	return err
}

// AwaitShown waits until the view has what the events of a process report: that it started, or
// that its record ended. Hosts write both at the same time. It returns after ten seconds at the
// latest, or with ctx.
func (p processTable) AwaitShown(ctx context.Context, id process.ID, evs []process.Event) {
	p.table.AwaitShown(ctx, id, evs)
}
