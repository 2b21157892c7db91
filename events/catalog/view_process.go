package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// processTable is the catalog in a view.
type processTable struct {
	write     *Documents
	retention time.Duration
	progress  *fold.Progress
	processes map[process.ID]*entry
	interner  interner // of values in processes
	members   map[sandbox.ID]*members
	totals    totals
}

// entry is a process in the catalog.
type entry struct {
	process.Summary
	rev uint64
}

// members holds a sandbox's processes, oldest first.
type members struct {
	all   []process.ID
	byPID map[uint32]process.ID // the newest process with that pid
}

func newProcessTable(d *Documents, p *fold.Progress, retention time.Duration) *processTable {
	return &processTable{
		write: d, progress: p, retention: retention,
		processes: make(map[process.ID]*entry),
		members:   make(map[sandbox.ID]*members),
		totals:    newTotals(),
	}
}

func (p *processTable) applySummary(m store.Message) error {
	if m.Subject == totalsSubject {
		if err := p.totals.apply(m); err != nil {
			return err
		}
		p.dropEntries(p.totals.dropped)
		return nil
	}
	s, err := codec.DecodeSummary(m.Data)
	if err != nil {
		return err
	}
	p.interner.summary(&s)
	var was *process.Summary
	if old := p.processes[s.ID]; old != nil {
		was = &old.Summary
	} else {
		p.addMember(&s)
	}
	p.totals.replace(was, &s, m.Seq)
	p.setPID(&s)
	p.processes[s.ID] = &entry{Summary: s, rev: m.Seq}
	return nil
}

// dropEntries drops the entries before a stream sequence, which a killed server may have
// restored.
func (p *processTable) dropEntries(before uint64) {
	of := map[sandbox.ID]bool{}
	for id, e := range p.processes {
		if e.rev >= before {
			continue
		}
		if e.Active() && counted(&e.Summary) {
			p.totals.running[e.Outcome()]--
		}
		delete(p.processes, id)
		of[id.Sandbox()] = true
	}
	for id := range of {
		p.pruneMembers(id)
	}
}

// addMember adds a process to its sandbox's, which are ordered by id and therefore by age,
// except for those with an idempotency key.
func (p *processTable) addMember(s *process.Summary) {
	sbx := s.ID.Sandbox()
	mem := p.members[sbx]
	if mem == nil {
		mem = &members{byPID: make(map[uint32]process.ID)}
		p.members[sbx] = mem
	}
	mem.all = append(mem.all, s.ID)
}

// setPID maps a process's pid to it, unless a younger process has had that pid since: the
// older one's entry may arrive later.
func (p *processTable) setPID(s *process.Summary) {
	byPID := p.members[s.ID.Sandbox()].byPID
	if had := p.processes[byPID[s.PID]]; s.PID != 0 && (had == nil || !s.Started.Before(had.Started)) {
		byPID[s.PID] = s.ID
	}
}

// pruneMembers removes processes that have left the catalog from their sandbox's.
func (p *processTable) pruneMembers(sbx sandbox.ID) {
	mem := p.members[sbx]
	gone := func(id process.ID) bool { return p.processes[id] == nil }
	mem.all = slices.DeleteFunc(mem.all, gone)
	maps.DeleteFunc(mem.byPID, func(_ uint32, id process.ID) bool { return gone(id) })
	if len(mem.all) == 0 {
		delete(p.members, sbx)
	}
}

// Process returns a process's entry in the catalog and its rev, for PutSummary.
func (p *processTable) Process(id process.ID) (process.Summary, uint64, bool) {
	p.progress.Lock()
	defer p.progress.Unlock()
	if e := p.processes[id]; e != nil {
		return e.Summary, e.rev, true
	}
	return process.Summary{}, 0, false
}

// Processes returns the entries of a sandbox ("": of all) for which keep is true, oldest
// first.
func (p *processTable) Processes(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	p.progress.Lock()
	defer p.progress.Unlock()
	var out []process.Summary
	visit := func(e *entry) {
		if keep(&e.Summary) {
			out = append(out, e.Summary)
		}
	}
	if sbx == "" {
		for _, e := range p.processes {
			visit(e)
		}
	} else if mem := p.members[sbx]; mem != nil {
		for _, id := range mem.all {
			visit(p.processes[id])
		}
	}
	slices.SortStableFunc(out, func(a, b process.Summary) int { return a.Started.Compare(b.Started) })
	return out
}

// ProcessByPID returns the newest process of the sandbox with that pid.
func (p *processTable) ProcessByPID(sbx sandbox.ID, pid uint32) (process.Summary, bool) {
	p.progress.Lock()
	defer p.progress.Unlock()
	if mem := p.members[sbx]; mem != nil {
		if e := p.processes[mem.byPID[pid]]; e != nil {
			return e.Summary, true
		}
	}
	return process.Summary{}, false
}

// forget drops processes that ended before a time. The view is locked.
func (p *processTable) forget(before time.Time) {
	of := map[sandbox.ID]bool{}
	for id, e := range p.processes {
		if !e.Active() && e.Ended.Before(before) {
			delete(p.processes, id)
			of[id.Sandbox()] = true
		}
	}
	for id := range of {
		p.pruneMembers(id)
	}
}
