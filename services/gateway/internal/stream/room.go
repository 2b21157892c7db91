package stream

import "sync"

const (
	// OwnRoom is what each stream may hold, however many there are. Nobody counts what a
	// stream keeps below it.
	OwnRoom = 128 << 10
	// sharedRoom is what all of them may hold beyond that.
	sharedRoom = 256 << 20
)

// Room is the memory of one stream for output that waits for the end of its line. It
// belongs to one goroutine.
type Room struct {
	of     *rooms
	tenant string
	taken  int // beyond OwnRoom
}

// Room gives one to a stream of a tenant's: it ends with the stream if that has it in its
// Head.
func (s *Streams) Room(tenant string) *Room { return &Room{of: &s.rooms, tenant: tenant} }

// Grow makes it large enough for n bytes, or reports that there is no room for them.
func (r *Room) Grow(n int) bool {
	more := n - OwnRoom - r.taken
	if more <= 0 {
		return true
	}
	if !r.of.take(r.tenant, more) {
		return false
	}
	r.taken += more
	return true
}

// Shrink gives back what n bytes do not need. It is for AppendIdle: a long line that was
// appended takes memory until it is sent, and its reader may be slow.
func (r *Room) Shrink(n int) {
	if less := r.taken - max(0, n-OwnRoom); less > 0 {
		r.of.give(r.tenant, less)
		r.taken -= less
	}
}

// rooms is what all streams share. A tenant has at most as much of it as it leaves free,
// so that there is always something for another one.
type rooms struct {
	mu    sync.Mutex
	free  int
	taken map[string]int // by tenant
}

func (r *rooms) take(tenant string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken[tenant]+n > r.free-n {
		return false
	}
	r.free -= n
	r.taken[tenant] += n
	return true
}

func (r *rooms) give(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	if r.taken[tenant] -= n; r.taken[tenant] == 0 {
		delete(r.taken, tenant)
	}
}
