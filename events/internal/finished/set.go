package finished

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/btree"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Set is a set of processes that ended.
type Set struct {
	chunks []*chunk // by number; nil: the number is free
	free   []uint32 // numbers of released chunks
	open   int      // number of the chunk that grows; -1: none
	slots  int      // maximum number of processes of a chunk

	byTenant, bySandbox, byID *btree.BTreeG[ref]
	hints                     [3]btree.PathHint // of the last additions: the next ones are often beside them

	from position // of the running search
}

// NewSet returns an empty set, whose chunks have at most slots processes, or MaxSlots.
func NewSet(slots int) *Set {
	s := &Set{open: -1, slots: min(slots, MaxSlots)}
	unlocked := btree.Options{NoLocks: true}
	s.byTenant = btree.NewBTreeGOptions(s.tenantLess, unlocked)
	s.bySandbox = btree.NewBTreeGOptions(s.sandboxLess, unlocked)
	s.byID = btree.NewBTreeGOptions(s.idLess, unlocked)
	return s
}

// Put adds a process that ended, whose entry has stream sequence rev. It replaces an earlier entry
// of the same process. The id is valid. Put reports whether no chunk grows any more, because the
// last one is full.
func (s *Set) Put(sum *process.Summary, rev uint64) (full bool) {
	if s.open >= 0 && !s.chunks[s.open].follows(rev) {
		s.Seal()
	}
	if s.open < 0 {
		s.open = s.place(&chunk{base: rev})
	}
	c := s.chunks[s.open]
	r := ref(s.open)<<slotBits | ref(len(c.keys))
	id, _ := ulid.Parse(sum.ID.Token()) // valid
	c.add(sum, id, rev)
	s.index(r)
	if full = len(c.keys) >= s.slots || len(c.data) >= maxBytes; full {
		s.Seal()
	}
	return full
}

// index adds a process to the orders, instead of an earlier one with its id.
func (s *Set) index(r ref) {
	if was, ok := s.byID.SetHint(r, &s.hints[0]); ok {
		s.byTenant.Delete(was)
		s.bySandbox.Delete(was)
		s.dropped(was)
	}
	s.byTenant.SetHint(r, &s.hints[1])
	s.bySandbox.SetHint(r, &s.hints[2])
}

// Seal makes the chunk that grows, if there is one, stay as it is.
func (s *Set) Seal() {
	if number := s.open; number >= 0 {
		s.open = -1
		s.chunks[number].seal()
		s.release(number)
	}
}

// sequence returns the numbers of the chunks, in the order in which their processes were added.
func (s *Set) sequence() []int {
	var numbers []int
	for number, c := range s.chunks {
		if c != nil {
			numbers = append(numbers, number)
		}
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return cmp.Compare(s.chunks[a].base, s.chunks[b].base) })
	return numbers
}

// place adds a chunk and returns its number.
func (s *Set) place(c *chunk) int {
	if n := len(s.free) - 1; n >= 0 {
		at := int(s.free[n])
		s.free, s.chunks[at] = s.free[:n], c
		return at
	}
	s.chunks = append(s.chunks, c)
	return len(s.chunks) - 1
}

// release drops a chunk without processes.
func (s *Set) release(number int) {
	if s.chunks[number].live == 0 {
		s.chunks[number], s.free = nil, append(s.free, uint32(number))
	}
}

// Get returns a process.
func (s *Set) Get(id process.ID) (it Item, ok bool) {
	r, ok := s.find(id)
	if !ok {
		return Item{}, false
	}
	return s.item(r), true
}

func (s *Set) find(id process.ID) (ref, bool) {
	u, err := ulid.Parse(id.Token())
	if err != nil {
		return 0, false
	}
	s.from = position{sandbox: []byte(id.Sandbox()), key: key{hi: binary.BigEndian.Uint64(u[:8]), lo: binary.BigEndian.Uint64(u[8:])}}
	return s.byID.Get(pivot)
}

func (s *Set) item(r ref) Item {
	c := s.chunks[r>>slotBits]
	return Item{key: *s.key(r), base: c.base, data: c.data}
}

// Remove removes a process, if the set has it.
func (s *Set) Remove(id process.ID) {
	if r, ok := s.find(id); ok {
		s.remove(r)
	}
}

func (s *Set) remove(r ref) {
	s.byTenant.Delete(r)
	s.bySandbox.Delete(r)
	s.byID.Delete(r)
	s.dropped(r)
}

// dropped records that the orders do not have a process any more.
func (s *Set) dropped(r ref) {
	number := int(r >> slotBits)
	s.chunks[number].live--
	if number != s.open {
		s.release(number)
	}
}

// RemoveBefore removes the processes whose entries have a stream sequence before rev.
func (s *Set) RemoveBefore(rev uint64) {
	for number, c := range s.chunks {
		if c == nil || c.base >= rev {
			continue
		}
		for slot := range c.keys {
			r := ref(number)<<slotBits | ref(slot)
			if s.chunks[number] == nil {
				break // released
			}
			if c.base+uint64(c.keys[slot].rev) >= rev {
				break // they are in the order of their sequences
			}
			if at, ok := s.byID.Get(r); ok && at == r {
				s.remove(r)
			}
		}
	}
}

// RemoveEnded removes the processes that ended before a time.
func (s *Set) RemoveEnded(before time.Time) {
	var old []ref
	for tenant, ok := s.nextTenant(nil); ok; tenant, ok = s.nextTenant(tenant) {
		s.from = position{key: key{at: math.MinInt64}, tenant: tenant}
		s.byTenant.Ascend(pivot, func(r ref) bool {
			k := s.key(r)
			if string(s.tenantOf(r)) != string(tenant) || k.at >= before.UnixNano() {
				return false
			}
			if restOf(k, s.chunks[r>>slotBits].data).ended.Before(before) {
				old = append(old, r)
			}
			return true
		})
	}
	for _, r := range old {
		s.remove(r)
	}
}

// nextTenant returns the tenant after another one; nil: the first.
func (s *Set) nextTenant(after []byte) (tenant []byte, ok bool) {
	s.from = position{key: key{at: math.MinInt64}, tenant: after}
	if after != nil {
		s.from.key = last
	}
	s.byTenant.Ascend(pivot, func(r ref) bool {
		tenant, ok = s.tenantOf(r), true
		return false
	})
	return tenant, ok
}

// last is after all processes of a tenant or a sandbox.
var last = key{at: math.MaxInt64, hi: math.MaxUint64, lo: math.MaxUint64}

// Has reports whether the set has processes of a sandbox.
func (s *Set) Has(sbx sandbox.ID) bool {
	return len(s.Oldest(nil, sbx, process.ListCursor{}, 1)) > 0
}
