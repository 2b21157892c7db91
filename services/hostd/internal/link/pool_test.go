package link

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestPoolMemoryIsAtMostFourTimesTheRequest: what waits for a sandbox is accounted by its
// length, so the memory must not be many times that.
func TestPoolMemoryIsAtMostFourTimesTheRequest(t *testing.T) {
	var p Pool
	for n := 1; n <= wire.MaxData+1024; n += 97 {
		mem := p.get(n)
		if len(mem) != n || cap(mem) > 4*n+64 && n >= 64 {
			t.Fatalf("for %d: %d of %d", n, len(mem), cap(mem))
		}
		p.Put(mem)
	}
}
