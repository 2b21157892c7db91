package procs

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Selector identifies a process within a sandbox; exactly one field is set.
type Selector struct {
	PID uint32
	Tag *string
	ID  process.ID
}

// Find returns the selected process, active or ended: for a pid the newest with it; for a
// tag the newest active one, or else the newest.
func (ps *Procs) Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel Selector) (process.Summary, error) {
	if sel.ID != "" {
		if sel.ID.Sandbox() != sbx {
			return process.Summary{}, noProcess(sel.ID)
		}
		return ps.Process(ctx, p, sel.ID)
	}
	if _, err := ps.lifecycle.FindSandbox(ctx, p, sbx); err != nil {
		return process.Summary{}, err
	}
	if sel.Tag != nil {
		return ps.findTag(ctx, sbx, *sel.Tag)
	}
	return ps.findPID(ctx, sbx, sel.PID)
}

// findPID trusts the view about an active process: if it has ended, its host rejects the
// command. An ended one may hide a newer process with the same pid that the view does not
// have yet.
func (ps *Procs) findPID(ctx context.Context, sbx sandbox.ID, pid uint32) (process.Summary, error) {
	if s, ok := ps.core.View.ProcessByPID(sbx, pid); ok && s.Active() {
		return s, nil
	}
	if err := ps.core.SyncProcesses(ctx); err != nil {
		return process.Summary{}, err
	}
	if s, ok := ps.core.View.ProcessByPID(sbx, pid); ok && pid != 0 {
		return s, nil
	}
	return process.Summary{}, kind.Newf(kind.NotFound, "find process", string(sbx), "process with pid %d not found", pid)
}

func (ps *Procs) findTag(ctx context.Context, sbx sandbox.ID, tag string) (process.Summary, error) {
	if err := ps.core.SyncProcesses(ctx); err != nil {
		return process.Summary{}, err
	}
	tagged := func(s *process.Summary) bool { return s.Spec.Tag != nil && *s.Spec.Tag == tag }
	for _, find := range []func(sandbox.ID, func(*process.Summary) bool) []process.Summary{ps.core.View.ActiveProcesses, ps.core.View.Processes} {
		if all := find(sbx, tagged); len(all) > 0 {
			return all[len(all)-1], nil
		}
	}
	return process.Summary{}, kind.Newf(kind.NotFound, "find process", string(sbx), "process with tag %s not found", tag)
}

// Process returns a process by its id, active or ended.
func (ps *Procs) Process(ctx context.Context, p core.Principal, id process.ID) (process.Summary, error) {
	if _, err := ps.lifecycle.FindSandbox(ctx, p, id.Sandbox()); err != nil {
		return process.Summary{}, noProcessIf(id, err)
	}
	if !p.MayRead(id) {
		return process.Summary{}, noProcess(id)
	}
	if s, _, ok := ps.core.View.Process(id); ok {
		return upTo(p.Until, s), nil
	}
	if err := ps.core.SyncProcesses(ctx); err != nil {
		return process.Summary{}, err
	}
	if s, _, ok := ps.core.View.Process(id); ok {
		return upTo(p.Until, s), nil
	}
	return process.Summary{}, noProcess(id)
}

// upTo returns a process without an end that follows seq until (0: no limit).
func upTo(until process.Seq, s process.Summary) process.Summary {
	if until != 0 && (s.Last == 0 || s.Last > until) {
		s.Ended, s.Killed, s.Exit, s.Last = time.Time{}, false, nil, 0
	}
	return s
}

// Processes returns the processes of a sandbox ("": of all of the principal's) for which
// keep returns true, oldest first, not older than the call.
func (ps *Procs) Processes(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error) {
	sbx, err := ps.syncList(ctx, p, sbx)
	if err != nil {
		return nil, err
	}
	return ps.core.View.Processes(sbx, listed(p, keep)), nil
}

// ActiveProcesses is Processes without those that ended. Its cost does not depend on them.
func (ps *Procs) ActiveProcesses(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error) {
	sbx, err := ps.syncList(ctx, p, sbx)
	if err != nil {
		return nil, err
	}
	return ps.core.View.ActiveProcesses(sbx, listed(p, keep)), nil
}

// ProcessPage returns a page of the principal's processes, newest first, and the cursor of the
// next page, not older than the call. It sets the query's tenant.
func (ps *Procs) ProcessPage(ctx context.Context, p core.Principal, q process.Query) (page []process.Summary, next process.ListCursor, err error) {
	if q.Sandbox, err = ps.syncList(ctx, p, q.Sandbox); err != nil {
		return nil, next, err
	}
	q.Tenant, q.Keep = p.Tenant, listed(p, q.Keep)
	page, next = ps.core.View.ProcessPage(&q)
	return page, next, nil
}

// syncList prepares a list of a sandbox's processes, and returns the sandbox that the principal
// may list; "": all of its tenant.
func (ps *Procs) syncList(ctx context.Context, p core.Principal, sbx sandbox.ID) (sandbox.ID, error) {
	if err := ps.core.SyncProcesses(ctx); err != nil {
		return "", err
	}
	if sbx == "" {
		sbx = p.Sandbox
	}
	if sbx == "" {
		return "", nil
	}
	_, err := ps.lifecycle.Sandbox(p, sbx)
	return sbx, err
}

// listed restricts keep to the principal's processes without watches, which are not clients'
// commands.
func listed(p core.Principal, keep func(*process.Summary) bool) func(*process.Summary) bool {
	return func(s *process.Summary) bool {
		return s.Tenant == p.Tenant && p.MayRead(s.ID) && s.Spec.Cmd != file.WatchCmd && keep(s)
	}
}

// Read returns a reader of the process's events after the given seq. It works as long as
// the record is kept, also when the sandbox has ended. It returns NotFound for an unknown
// process and for another tenant's.
func (ps *Procs) Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (*record.Reader, error) {
	ref, err := ps.ref(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return ps.core.Log.Read(ref, after).ShownBy(ps.core.View).Until(p.Until), nil
}

// ReadLive returns a reader of what is stored after the call. Errors are those of Read.
func (ps *Procs) ReadLive(ctx context.Context, p core.Principal, id process.ID) (*record.Reader, error) {
	ref, err := ps.ref(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return ps.core.Log.ReadLive(ref).ShownBy(ps.core.View).Until(p.Until), nil
}

// Tail returns the end of a process's record as stored. Errors are those of Read.
func (ps *Procs) Tail(ctx context.Context, p core.Principal, id process.ID) (record.Tail, error) {
	ref, err := ps.ref(ctx, p, id)
	if err != nil {
		return record.Tail{}, err
	}
	tip, err := ps.tip(ctx, ref)
	if tip.Finished != nil {
		ps.core.View.AwaitShown(ctx, id, []process.Event{{Body: *tip.Finished}})
	}
	if p.Until != 0 && tip.Last > p.Until {
		tip = record.Tail{Last: p.Until, Host: tip.Host, Epoch: tip.Epoch}
	}
	return tip, core.LogError("read", string(id), err)
}

func (ps *Procs) tip(ctx context.Context, ref record.Ref) (record.Tail, error) {
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	return ps.core.Log.StaleTail(ctx, ref)
}

// SeqsAround locates a moment in a process's record, as [record.Records.SeqsAround] does: all events up to
// seq before are earlier, none after seq after is. Errors are those of Read.
func (ps *Procs) SeqsAround(ctx context.Context, p core.Principal, id process.ID, at time.Time) (before, after process.Seq, err error) {
	ref, err := ps.ref(ctx, p, id)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	before, after, err = ps.core.Log.SeqsAround(ctx, ref, at)
	if p.Until != 0 {
		before, after = min(before, p.Until), min(after, p.Until)
	}
	return before, after, core.LogError("read", string(id), err)
}

// ref returns a process's record. A process that is not in the catalog may have one: it
// was claimed but has not started.
func (ps *Procs) ref(ctx context.Context, p core.Principal, id process.ID) (record.Ref, error) {
	st, err := ps.lifecycle.FindSandbox(ctx, p, id.Sandbox())
	if err != nil {
		return record.Ref{}, noProcessIf(id, err)
	}
	if !p.MayRead(id) {
		return record.Ref{}, noProcess(id)
	}
	ref := record.Ref{Host: st.Host, ID: id}
	if _, _, ok := ps.core.View.Process(id); ok {
		return ref, nil
	}
	if st.Host == "" {
		return record.Ref{}, noProcess(id)
	}
	if _, err := ps.tip(ctx, ref); err != nil {
		return record.Ref{}, core.LogError("read", string(id), noProcessIf(id, err))
	}
	return ref, nil
}

// Counts counts all processes ever started, by outcome, not older than the call. With an
// error it returns the counts of the view.
func (ps *Procs) Counts(ctx context.Context) (map[process.Outcome]uint64, error) {
	err := ps.core.SyncProcesses(ctx)
	return ps.core.View.Counts(), err
}

func noProcess(id process.ID) error {
	return kind.New(kind.NotFound, "find process", string(id), "process not found")
}

// noProcessIf turns NotFound of a process's sandbox or record into NotFound of the process.
// Any other error is returned as it is: an unreachable log hides everything.
func noProcessIf(id process.ID, err error) error {
	if kind.Is(err, kind.NotFound) {
		return noProcess(id)
	}
	return err
}
