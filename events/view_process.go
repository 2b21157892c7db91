package events

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

func (v *View) applySummary(m stored) error {
	if m.subject == totalsSubject {
		if err := v.totals.apply(m); err != nil {
			return err
		}
		v.dropEntries(v.totals.dropped)
		return nil
	}
	s, err := codec.DecodeSummary(m.data)
	if err != nil {
		return err
	}
	v.interner.summary(&s)
	var was *process.Summary
	if old := v.processes[s.ID]; old != nil {
		was = &old.Summary
	} else {
		v.addMember(&s)
	}
	v.totals.replace(was, &s, m.seq)
	v.setPID(&s)
	v.processes[s.ID] = &entry{Summary: s, rev: m.seq}
	return nil
}

// dropEntries drops the entries before a stream sequence, which a killed server may have
// restored.
func (v *View) dropEntries(before uint64) {
	of := map[sandbox.ID]bool{}
	for id, e := range v.processes {
		if e.rev >= before {
			continue
		}
		if e.Active() && counted(&e.Summary) {
			v.totals.running[e.Outcome()]--
		}
		delete(v.processes, id)
		of[id.Sandbox()] = true
	}
	for id := range of {
		v.pruneMembers(id)
	}
}

// addMember adds a process to its sandbox's, which are ordered by id and therefore by age,
// except for those with an idempotency key.
func (v *View) addMember(s *process.Summary) {
	sbx := s.ID.Sandbox()
	mem := v.members[sbx]
	if mem == nil {
		mem = &members{byPID: make(map[uint32]process.ID)}
		v.members[sbx] = mem
	}
	mem.all = append(mem.all, s.ID)
}

// setPID maps a process's pid to it, unless a younger process has had that pid since: the
// older one's entry may arrive later.
func (v *View) setPID(s *process.Summary) {
	byPID := v.members[s.ID.Sandbox()].byPID
	if had := v.processes[byPID[s.PID]]; s.PID != 0 && (had == nil || !s.Started.Before(had.Started)) {
		byPID[s.PID] = s.ID
	}
}

// pruneMembers removes processes that have left the catalogue from their sandbox's.
func (v *View) pruneMembers(sbx sandbox.ID) {
	mem := v.members[sbx]
	gone := func(id process.ID) bool { return v.processes[id] == nil }
	mem.all = slices.DeleteFunc(mem.all, gone)
	maps.DeleteFunc(mem.byPID, func(_ uint32, id process.ID) bool { return gone(id) })
	if len(mem.all) == 0 {
		delete(v.members, sbx)
	}
}

// Process returns a process's entry in the catalogue and its rev, for PutSummary.
func (v *View) Process(id process.ID) (process.Summary, uint64, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.processes[id]; e != nil {
		return e.Summary, e.rev, true
	}
	return process.Summary{}, 0, false
}

// Processes returns the entries of a sandbox ("": of all) for which keep is true, oldest
// first.
func (v *View) Processes(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []process.Summary
	visit := func(e *entry) {
		if keep(&e.Summary) {
			out = append(out, e.Summary)
		}
	}
	if sbx == "" {
		for _, e := range v.processes {
			visit(e)
		}
	} else if mem := v.members[sbx]; mem != nil {
		for _, id := range mem.all {
			visit(v.processes[id])
		}
	}
	slices.SortStableFunc(out, func(a, b process.Summary) int { return a.Started.Compare(b.Started) })
	return out
}

// ProcessByPID returns the newest process of the sandbox with that pid.
func (v *View) ProcessByPID(sbx sandbox.ID, pid uint32) (process.Summary, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if mem := v.members[sbx]; mem != nil {
		if e := v.processes[mem.byPID[pid]]; e != nil {
			return e.Summary, true
		}
	}
	return process.Summary{}, false
}

func (v *View) applyAccount(m stored) error {
	var b pb.AccountEvent
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return err
	}
	switch e := b.Body.(type) {
	case *pb.AccountEvent_TemplateTagged:
		return v.applyTagged(m.subject, codec.Time(b.TimeNs), e.TemplateTagged)
	case *pb.AccountEvent_TemplateUntagged:
		return v.applyUntagged(m.subject, e.TemplateUntagged)
	case *pb.AccountEvent_SigningKeyMade:
		v.applySigningKey(codec.Time(b.TimeNs), e.SigningKeyMade)
	case *pb.AccountEvent_TemplatePublished:
		return v.applyPublished(m.subject, e.TemplatePublished)
	case *pb.AccountEvent_KeyIssued:
		k := Key{ID: e.KeyIssued.Id, Hint: e.KeyIssued.Hint, Name: e.KeyIssued.Name, Issued: codec.Time(b.TimeNs)}
		if copy(k.SHA256[:], e.KeyIssued.Sha256) != len(k.SHA256) {
			return fmt.Errorf("hash of %d bytes", len(e.KeyIssued.Sha256))
		}
		tenant, ok := tenantOf(m.subject)
		if !ok {
			return fmt.Errorf("subject %q", m.subject)
		}
		k.Tenant = tenant
		v.keys[k.SHA256] = k
	case *pb.AccountEvent_KeyRevoked:
		if tenant, ok := tenantOf(m.subject); ok {
			v.revoked[tenant] = m.seq
		}
		for hash, k := range v.keys {
			if k.ID == e.KeyRevoked.Id {
				k.Revoked = true
				v.keys[hash] = k
			}
		}
	}
	return nil
}

// Key returns the key with that hash, if it is valid.
func (v *View) Key(sha256 [32]byte) (Key, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k, ok := v.keys[sha256]
	return k, ok && !k.Revoked
}

// Keys returns all keys of a tenant ("": of all), including revoked ones.
func (v *View) Keys(tenant string) []Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Key
	for _, k := range v.keys {
		if tenant == "" || k.Tenant == tenant {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Key) int { return a.Issued.Compare(b.Issued) })
	return out
}
