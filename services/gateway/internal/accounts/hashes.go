package accounts

import (
	"context"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/millrace/millrace/services/gateway/internal/core"
)

// maxHashes is the number of keys that wait for their slow hash. A key beyond it gets its hash
// after it was used again.
const maxHashes = 1024

// hashes computes the slow hashes of keys, one at a time and on no request's path. A hash that is
// lost with a gateway is computed when the key is used.
type hashes struct {
	core *core.Core
	wake chan struct{}

	mu    sync.Mutex
	queue []string          // keys, oldest first
	owner map[string]string // key -> tenant, of the keys that wait or are being hashed
}

func newHashes(c *core.Core) *hashes {
	return &hashes{core: c, wake: make(chan struct{}, 1), owner: make(map[string]string)}
}

// add queues a key, which must not share memory with a request.
func (h *hashes) add(tenant, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waits := h.owner[key]; waits || len(h.queue) >= maxHashes {
		return
	}
	h.queue, h.owner[key] = append(h.queue, key), tenant
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *hashes) next() (tenant, key string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return "", "", false
	}
	key, h.queue = h.queue[0], h.queue[1:]
	return h.owner[key], key, true
}

func (h *hashes) done(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owner, key)
}

// Run stores the slow hashes of keys until ctx ends.
func (a *Accounts) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.hashes.wake:
		}
		for tenant, key, ok := a.hashes.next(); ok && ctx.Err() == nil; tenant, key, ok = a.hashes.next() {
			if err := a.hashes.store(ctx, tenant, key); err != nil && ctx.Err() == nil {
				a.core.Slog.Warn("store key hash failed", "tenant", tenant, "err", err)
			}
			a.hashes.done(key)
		}
	}
}

func (h *hashes) store(ctx context.Context, tenant, key string) error {
	hash, err := bcrypt.GenerateFromPassword([]byte(key), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.core.CallTimeout)
	defer cancel()
	return h.core.Log.PutKeyHash(ctx, tenant, key, hash)
}
