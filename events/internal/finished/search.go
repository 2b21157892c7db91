package finished

import (
	"encoding/binary"
	"math"
	"sort"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Newest appends to dst at most n processes of a sandbox (empty: of the tenant) before a position,
// newest first. The zero position is after all of them.
func (s *Set) Newest(dst []Item, tenant string, sbx sandbox.ID, before process.ListCursor, n int) []Item {
	s.from = position{key: last, tenant: []byte(tenant), sandbox: []byte(sbx)}
	if before.ID != "" {
		s.seek(before)
	}
	tree, within := s.bySandbox, s.inSandbox
	if sbx == "" {
		tree, within = s.byTenant, s.inTenant
		if before.ID != "" {
			s.from.sandbox = []byte(before.ID.Sandbox())
		}
	}
	full := len(dst) + n
	tree.Descend(pivot, func(r ref) bool {
		if !within(r) {
			return false
		}
		if before.ID == "" || !s.at(r, before) {
			dst = append(dst, s.item(r))
		}
		return len(dst) < full
	})
	return dst
}

// Oldest appends to dst at most n processes of a sandbox after a position, oldest first. Without a
// sandbox it goes on with those of the next one. The zero position is before all of them.
func (s *Set) Oldest(dst []Item, sbx sandbox.ID, after process.ListCursor, n int) []Item {
	s.from = position{key: key{at: math.MinInt64}, sandbox: []byte(sbx)}
	if after.ID != "" {
		s.seek(after)
		s.from.sandbox = []byte(after.ID.Sandbox())
	}
	full := len(dst) + n
	s.bySandbox.Ascend(pivot, func(r ref) bool {
		if sbx != "" && !s.inSandbox(r) {
			return false
		}
		if after.ID == "" || !s.at(r, after) {
			dst = append(dst, s.item(r))
		}
		return len(dst) < full
	})
	return dst
}

// seek moves the beginning of the search to a position. An id that is not valid is before all
// others of its time.
func (s *Set) seek(to process.ListCursor) {
	u, _ := ulid.Parse(to.ID.Token()) // zero if it is not valid
	s.from.at, s.from.hi, s.from.lo = to.At, binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
}

func (s *Set) inTenant(r ref) bool  { return s.compareTenants(r, pivot) == 0 }
func (s *Set) inSandbox(r ref) bool { return s.compareSandboxes(r, pivot) == 0 }

// at reports whether a process is the one at a position, whose search has begun.
func (s *Set) at(r ref, c process.ListCursor) bool {
	k := s.key(r)
	return k.hi == s.from.hi && k.lo == s.from.lo && string(s.sandboxOf(r)) == string(c.ID.Sandbox())
}

// ByPID returns the newest process of a sandbox that had a pid and is not older than a time, in
// Unix nanoseconds.
func (s *Set) ByPID(sbx sandbox.ID, pid uint32, since int64) (it Item, ok bool) {
	s.from = position{key: last, sandbox: []byte(sbx)}
	s.bySandbox.Descend(pivot, func(r ref) bool {
		k := s.key(r)
		if k.at < since || !s.inSandbox(r) {
			return false
		}
		if k.pid == pid {
			it, ok = s.item(r), true
		}
		return !ok
	})
	return it, ok
}

// After appends to dst at most n processes whose entries have a stream sequence after rev, in the order
// of their entries.
func (s *Set) After(dst []Item, rev uint64, n int) []Item {
	full := len(dst) + n
	for _, number := range s.sequence() {
		c := s.chunks[number]
		if c.base+uint64(c.keys[len(c.keys)-1].rev) <= rev {
			continue
		}
		first := sort.Search(len(c.keys), func(slot int) bool { return c.base+uint64(c.keys[slot].rev) > rev })
		for slot := first; slot < len(c.keys); slot++ {
			r := ref(number)<<slotBits | ref(slot)
			if at, ok := s.byID.Get(r); !ok || at != r {
				continue // removed
			}
			if dst = append(dst, s.item(r)); len(dst) == full {
				return dst
			}
		}
	}
	return dst
}

// Ended appends to dst the processes of one chunk for which keep is true, which gets the stream sequence of
// their entry and when they ended: of the first chunk with entries that have a stream sequence after rev. next
// is the stream sequence to continue after; 0: there is no other chunk.
func (s *Set) Ended(dst []Item, rev uint64, keep func(rev uint64, ended time.Time) bool) (items []Item, next uint64) {
	for _, number := range s.sequence() {
		c := s.chunks[number]
		last := c.base + uint64(c.keys[len(c.keys)-1].rev)
		if last <= rev {
			continue
		}
		for slot := range c.keys {
			k := &c.keys[slot]
			if at := c.base + uint64(k.rev); at <= rev || !keep(at, restOf(k, c.data).ended) {
				continue
			}
			r := ref(number)<<slotBits | ref(slot)
			if at, ok := s.byID.Get(r); ok && at == r { // not removed
				dst = append(dst, s.item(r))
			}
		}
		return dst, last
	}
	return dst, 0
}
