package record

import (
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/process"
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

// count counts the events that operators watch, which do not happen on a healthy day.
func (l *Records) count(events []process.Event) {
	for i := range events {
		switch events[i].Body.(type) { //nolint:gochecksumtype // the others are usual
		case process.Lost:
			observe.Count(l.conn.To.Lost)
		case process.Gap:
			observe.Count(l.conn.To.Gap)
		}
	}
}

// Retention returns how long output can be read.
func (l *Records) Retention() time.Duration { return l.retention }
