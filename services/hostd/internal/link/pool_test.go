package link

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// What a sandbox has wait is counted by its length: the memory that it takes must not be
// many times that, whatever length it chooses.
func TestPoolGivesNoMoreThanFourTimes(t *testing.T) {
	var p Pool
	for n := 1; n <= wire.MaxData+1024; n += 97 {
		mem := p.get(n)
		if len(mem) != n || cap(mem) > 4*n+64 && n >= 64 {
			t.Fatalf("for %d: %d of %d", n, len(mem), cap(mem))
		}
		p.Put(mem)
	}
}
