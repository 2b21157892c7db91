package stream

import (
	"io"
	"sync"

	"github.com/millrace/millrace/events/kind"
)

const (
	// BaseBudget is what each stream or request may hold without being counted.
	BaseBudget = 128 << 10
	// defaultBudget is what all of them together may hold beyond BaseBudget.
	defaultBudget = 256 << 20
)

// ErrOverBudget reports that a request needs more buffer memory than its tenant has left.
var ErrOverBudget = kind.New(kind.Unavailable, "hold", "", "too much memory is used by large requests and responses: retry when others of yours have finished")

// Budget is the memory of one stream or request for large data that must be buffered: a
// partial line, a body, a response. It must be used by one goroutine at a time.
type Budget struct {
	pool   *budgetPool
	tenant string
	used   int // beyond BaseBudget
}

// Budget returns a budget for one stream or request of a tenant. A stream that has it in
// its [Head] releases it at its end.
func (s *Streams) Budget(tenant string) *Budget { return &Budget{pool: &s.pool, tenant: tenant} }

// Grow reserves memory for n bytes in total, and reports whether it was available.
func (r *Budget) Grow(n int) bool {
	more := n - BaseBudget - r.used
	if more <= 0 {
		return true
	}
	if !r.pool.reserve(r.tenant, more) {
		return false
	}
	r.used += more
	return true
}

// Shrink releases what n bytes do not need. Encoders call it in AppendIdle: a long line
// occupies memory until it is sent, and its reader may be slow.
func (r *Budget) Shrink(n int) {
	if less := r.used - max(0, n-BaseBudget); less > 0 {
		r.pool.release(r.tenant, less)
		r.used -= less
	}
}

// Reader returns a reader of from that fails with [ErrOverBudget] once the data exceeds the budget.
func (r *Budget) Reader(from io.Reader) io.Reader { return &budgetReader{from: from, budget: r} }

type budgetReader struct {
	from   io.Reader
	budget *Budget
	n      int
}

func (r *budgetReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.n += n; !r.budget.Grow(r.n) {
		err = ErrOverBudget
	}
	return n, err
}

// budgetPool is the memory that all budgets share. A tenant may have at most as much
// as it leaves free, so that other tenants always find some.
type budgetPool struct {
	mu   sync.Mutex
	free int
	used map[string]int // by tenant
}

func (r *budgetPool) reserve(tenant string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[tenant]+n > r.free-n {
		return false
	}
	r.free -= n
	r.used[tenant] += n
	return true
}

func (r *budgetPool) release(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	if r.used[tenant] -= n; r.used[tenant] == 0 {
		delete(r.used, tenant)
	}
}
