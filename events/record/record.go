package record

import (
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/store"
)

// Records reads and writes the records of processes. Its methods may be called concurrently.
type Records struct {
	conn      *store.Conn
	retention time.Duration

	mu    sync.Mutex
	tails map[string]*liveTail // by subject
}

// NewRecords returns the records of all processes, which are kept for the retention.
func NewRecords(conn *store.Conn, retention time.Duration) *Records {
	return &Records{conn: conn, retention: retention, tails: make(map[string]*liveTail)}
}

// Retention returns how long output can be read.
func (l *Records) Retention() time.Duration { return l.retention }
