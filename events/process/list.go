package process

import (
	"math"

	"github.com/millrace/millrace/events/sandbox"
)

// Query selects a page of a list of processes.
type Query struct {
	Tenant  string
	Sandbox sandbox.ID          // empty: all of the tenant
	Active  bool                // omits processes that ended
	After   ListCursor          // the last process of the previous page; zero: from the newest
	Limit   int                 // maximum number of processes
	Keep    func(*Summary) bool // selects processes; it must not retain its argument
}

// ListCursor is the position of a process in lists. It remains valid when the process is gone.
type ListCursor struct {
	At int64 // Unix nanoseconds
	ID ID
}

// ListedAt returns the time by which s is listed, in Unix nanoseconds: its start, else its end.
// A process that has neither is newer than all others, and starts as the newest, so that a
// client that reads older pages does not miss it.
func (s *Summary) ListedAt() int64 {
	switch {
	case !s.Started.IsZero():
		return s.Started.UnixNano()
	case !s.Ended.IsZero():
		return s.Ended.UnixNano()
	}
	return math.MaxInt64
}
