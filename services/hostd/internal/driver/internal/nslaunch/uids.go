//go:build linux

package nslaunch

import (
	"hash/fnv"
	"os"
	"strings"
	"sync"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

const rangeSize = nsinit.RangeSize

// UIDs gives each sandbox its own range of the host's uids, so that what one
// could do to processes or files of its uid it cannot do to another's. It may be used
// by many at a time.
type UIDs struct {
	first, slots uint32

	mu   sync.Mutex
	used map[uint32]bool // bases; by mu
}

// The host's uids from which ranges are given away. They end below what systemd
// reserves above 0x6FFFFFFF.
const (
	firstMachine = 1 << 27
	firstPlace   = 1 << 28
	lastPlace    = 3 << 29
)

// ForMachines are the UIDs of the programs that run machines.
func ForMachines() *UIDs { return between(firstMachine, firstPlace) }

// ForPlaces are the UIDs of the sandboxes that are processes of the host's kernel.
func ForPlaces() *UIDs { return between(firstPlace, lastPlace) }

func between(first, last uint32) *UIDs {
	return &UIDs{first: first, slots: (last - first) / rangeSize, used: map[uint32]bool{}}
}

// Take gives the first uid of a free range. Where it begins to look depends on the
// sandbox, so that two hostds on one machine, which do not know of each other, seldom
// meet; should they, the other namespaces still part them.
func (u *UIDs) Take(id sandbox.ID) (uint32, error) {
	h := fnv.New32a()
	h.Write([]byte(id)) //nolint:errcheck // it never fails
	u.mu.Lock()
	defer u.mu.Unlock()
	start := h.Sum32() % u.slots
	for i := range u.slots {
		base := u.first + (start+i)%u.slots*rangeSize
		if !u.used[base] {
			u.used[base] = true
			return base, nil
		}
	}
	return 0, kind.New(kind.Exhausted, "create sandbox", string(id), "no range of user ids is free")
}

// Mark notes a range as taken; 0 is none.
func (u *UIDs) Mark(base uint32) {
	if base == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[base] = true
}

// Free gives a range back; 0 is none.
func (u *UIDs) Free(base uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, base)
}

// HasRanges reports whether this process may give away uid ranges: it is root,
// and of the whole machine, not of a container with a few ids.
func HasRanges() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}
