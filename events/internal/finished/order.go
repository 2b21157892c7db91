package finished

import (
	"bytes"
	"math"
)

// ref is a process in a set: the number of its chunk and its place in that.
type ref uint32

// pivot refers to the position at which a search begins.
const pivot ref = math.MaxUint32

// position is where a search begins: the fields that the order of the search compares.
type position struct {
	key
	tenant, sandbox []byte
}

func (s *Set) key(r ref) *key {
	if r == pivot {
		return &s.from.key
	}
	return &s.chunks[r>>slotBits].keys[r&(MaxSlots-1)]
}

func (s *Set) tenantOf(r ref) []byte {
	if r == pivot {
		return s.from.tenant
	}
	return textAt(s.chunks[r>>slotBits].data, s.key(r).tenant)
}

func (s *Set) sandboxOf(r ref) []byte {
	if r == pivot {
		return s.from.sandbox
	}
	return textAt(s.chunks[r>>slotBits].data, s.key(r).sandbox)
}

// compareTenants and compareSandboxes do not read the text if both processes share it.
func (s *Set) compareTenants(a, b ref) int {
	if a>>slotBits == b>>slotBits && s.key(a).tenant == s.key(b).tenant {
		return 0
	}
	return bytes.Compare(s.tenantOf(a), s.tenantOf(b))
}

func (s *Set) compareSandboxes(a, b ref) int {
	if a>>slotBits == b>>slotBits && s.key(a).sandbox == s.key(b).sandbox {
		return 0
	}
	return bytes.Compare(s.sandboxOf(a), s.sandboxOf(b))
}

func (s *Set) tenantLess(a, b ref) bool {
	if c := s.compareTenants(a, b); c != 0 {
		return c < 0
	}
	return s.older(a, b)
}

func (s *Set) sandboxLess(a, b ref) bool {
	if c := s.compareSandboxes(a, b); c != 0 {
		return c < 0
	}
	return s.older(a, b)
}

func (s *Set) older(a, b ref) bool {
	if x, y := s.key(a).at, s.key(b).at; x != y {
		return x < y
	}
	return s.idLess(a, b)
}

func (s *Set) idLess(a, b ref) bool {
	x, y := s.key(a), s.key(b)
	switch {
	case x.hi != y.hi:
		return x.hi < y.hi
	case x.lo != y.lo:
		return x.lo < y.lo
	}
	return s.compareSandboxes(a, b) < 0
}
