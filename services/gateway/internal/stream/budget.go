package stream

import (
	"io"
	"sync"

	"github.com/millrace/millrace/events/kind"
)

const (
	// OwnRoom is what each may hold, however many there are: nobody counts what is below it.
	OwnRoom = 128 << 10
	// sharedRoom is what all of them may hold beyond that.
	sharedRoom = 256 << 20
)

// ErrNoRoom is for who cannot go on without room.
var ErrNoRoom = kind.New(kind.Unavailable, "hold", "", "too much of large requests and answers is held: try again when others of yours are done")

// Room is the memory of one stream or request for what is large and must be held: output
// that waits for the end of its line, a body, an answer. It belongs to one goroutine at a
// time.
type Room struct {
	of     *rooms
	tenant string
	taken  int // beyond OwnRoom
}

// Room gives one to a stream or a request of a tenant's. With a stream that has it in its
// Head it ends by itself.
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

// Shrink gives back what n bytes do not need. Encoders do it in AppendIdle: a long line
// that was appended takes memory until it is sent, and its reader may be slow.
func (r *Room) Shrink(n int) {
	if less := r.taken - max(0, n-OwnRoom); less > 0 {
		r.of.give(r.tenant, less)
		r.taken -= less
	}
}

// Reader reads from, as long as there is room for all of it: else its error is ErrNoRoom.
func (r *Room) Reader(from io.Reader) io.Reader { return &roomy{from: from, room: r} }

type roomy struct {
	from io.Reader
	room *Room
	n    int
}

func (r *roomy) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.n += n; !r.room.Grow(r.n) {
		err = ErrNoRoom
	}
	return n, err
}

// rooms is what all share. A tenant has at most as much of it as it leaves free,
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
