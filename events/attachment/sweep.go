package attachment

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

const (
	// leaseAge is the age at which the lease of a run that has ended is removed. It is far above
	// unknownAge and all leases' time to live.
	leaseAge = time.Hour
	// endedAge is the age at which a session that has ended is removed.
	endedAge = 10 * time.Minute
)

// Sweep removes old leases, and sessions that have ended, from the log and from the copy. The
// stream's last message stays, because it marks how far readers must read.
func (s *Store) Sweep(ctx context.Context) error {
	stream, err := s.conn.Stream(ctx, streams.Attachments)
	if err != nil {
		return store.Unavailable("sweep", streams.Attachments, err)
	}
	var errs []error
	for subject, rev := range s.forget(time.Now()) {
		errs = append(errs, stream.Purge(ctx, subject, rev+1))
	}
	return store.Unavailable("sweep", streams.Attachments, errors.Join(errs...))
}

// forget drops what is old from the copy, and returns the revisions by subject.
func (s *Store) forget(now time.Time) map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := make(map[string]uint64)
	maps.DeleteFunc(s.gateways, func(run string, g fleet.Host) bool {
		over := g.Rev < s.applied && now.Sub(g.Received) > leaseAge
		if over {
			old[gatewayPrefix+run] = g.Rev
		}
		return over
	})
	maps.DeleteFunc(s.sessions, func(subject string, x Session) bool {
		over := x.Phase == Ended && x.Rev < s.applied && now.Sub(x.Since) > endedAge
		if over {
			old[subject] = x.Rev
		}
		return over
	})
	return old
}
