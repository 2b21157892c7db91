package session

import (
	"cmp"
	"context"
	"errors"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// orphans returns the processes of an earlier run that the shim does not have and that have no
// end in the catalog. Each call returns those that no earlier call returned. Records of
// processes that ended are left to package audit: there may be a million.
func (ss *Session) orphans() []*proc {
	if !ss.adopted {
		return nil // this run started every process of the sandbox
	}
	all := ss.h.cfg.View.ActiveProcesses(ss.cfg.ID, func(s *process.Summary) bool {
		// A process that was claimed and may not run is left to its start command, which is read
		// again.
		return s.Epoch < ss.h.cfg.Epoch && !s.Started.IsZero()
	})
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var out []*proc
	for i := range all {
		s := &all[i]
		_, forgotten := ss.forgotten[s.ID.Token()]
		if forgotten || ss.procs[s.ID.Token()] != nil {
			continue
		}
		p := ss.h.newProc(ss, s.ID)
		ss.procs[s.ID.Token()] = p
		ss.forgotten[s.ID.Token()] = struct{}{}
		ss.h.cfg.Spawn("process "+string(s.ID), p.endOrphan)
		out = append(out, p)
	}
	return out
}

// endOrphan ends the record of a process that is gone, unless the record has ended.
func (p *proc) endOrphan(ctx context.Context) error {
	defer p.close()
	tail, err := p.w.Recover(ctx)
	none := kind.Is(err, kind.NotFound)
	if err != nil && !none {
		return err
	}
	if tail.Finished != nil {
		if err := p.entry.end(ctx, tail.Finished.Exit); !errors.Is(err, errFinished) {
			return err
		}
		return nil
	}
	if err := p.entry.read(ctx); err != nil {
		return err
	}
	if none {
		if lost, lostErr := p.h.cfg.Log.Lost(ctx, &p.entry.sum); !lost {
			return cmp.Or(lostErr, err) // retention dropped it
		}
	}
	return p.publish(ctx)
}
