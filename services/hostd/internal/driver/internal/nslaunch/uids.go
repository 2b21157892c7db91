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

// UIDs assigns each sandbox its own range of the host's uids, which protects the
// processes and files of one sandbox from another. It is safe for concurrent
// use.
type UIDs struct {
	first, slots uint32

	mu   sync.Mutex
	used map[uint32]bool // bases; guarded by mu
}

// The host's uids from which ranges are assigned. They end below what systemd
// reserves above 0x6FFFFFFF.
const (
	firstMachine = 1 << 27
	firstProcess = 1 << 28
	lastProcess  = 3 << 29
)

// ForMachines returns the UIDs of programs that run virtual machines.
func ForMachines() *UIDs { return between(firstMachine, firstProcess) }

// ForProcesses returns the UIDs of sandboxes that are processes of the host's kernel.
func ForProcesses() *UIDs { return between(firstProcess, lastProcess) }

func between(first, last uint32) *UIDs {
	return &UIDs{first: first, slots: (last - first) / rangeSize, used: map[uint32]bool{}}
}

// Take returns the first uid of a free range. Its search starts at a point that depends on
// the sandbox, so that two independent hostds on one machine seldom choose the same range;
// if they do, the other namespaces still separate them.
func (u *UIDs) Take(id sandbox.ID) (uint32, error) {
	h := fnv.New32a()
	h.Write([]byte(id))
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

// Mark marks a range as taken; 0 means no range.
func (u *UIDs) Mark(base uint32) {
	if base == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[base] = true
}

// Free releases a range; 0 means no range.
func (u *UIDs) Free(base uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, base)
}

// HasRanges reports whether this process may assign uid ranges: it is root,
// and of the whole machine, not of a container with a few ids.
func HasRanges() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}
