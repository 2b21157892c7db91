package events

import (
	"sync"
	"time"
)

// records is the part of a Log that reads and writes the records of processes, and their
// entries in the catalogue.
type records struct {
	*conn
	retention time.Duration

	mu    sync.Mutex
	tails map[string]*liveTail // by subject
}

// Retention returns how long output can be read.
func (l *records) Retention() time.Duration { return l.retention }
