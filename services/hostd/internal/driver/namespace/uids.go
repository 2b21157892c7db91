//go:build linux

package namespace

import (
	"hash/fnv"
	"os"
	"strings"
	"sync"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

const (
	rangeSize = nsinit.RangeSize
	firstBase = 1 << 28
	lastBase  = 3 << 29 // below what systemd reserves above 0x6FFFFFFF
	slots     = (lastBase - firstBase) / rangeSize
)

// uids gives each sandbox its own range of the host's uids, so that what one
// could do to processes or files of its uid it cannot do to another's.
type uids struct {
	mu   sync.Mutex
	used map[uint32]bool // bases
}

// take gives a free range. Where it begins to look depends on the sandbox, so
// that two hostds on one machine, which do not know of each other, seldom meet;
// should they, the other namespaces still part them.
func (u *uids) take(id sandbox.ID) (uint32, error) {
	h := fnv.New32a()
	h.Write([]byte(id))
	u.mu.Lock()
	defer u.mu.Unlock()
	first := h.Sum32() % slots
	for i := range uint32(slots) {
		base := firstBase + (first+i)%slots*rangeSize
		if !u.used[base] {
			u.used[base] = true
			return base, nil
		}
	}
	return 0, kind.New(kind.Exhausted, "create sandbox", string(id), "no range of user ids is free")
}

// mark notes a range as taken.
func (u *uids) mark(base uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[base] = true
}

// free gives a range back.
func (u *uids) free(base uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, base)
}

// hasRanges reports whether this process may give away uid ranges: it is root,
// and of the whole machine, not of a container with a few ids.
func hasRanges() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}
