package bundlestore

import (
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

// sweepAge is the age at which values without a head are removed: far longer than a writer takes from
// the first value to the head.
const sweepAge = time.Hour

// Remove removes the values of a generation that no head names.
func (s *Store) Remove(ctx context.Context, tenant string, g bundle.Generation) error {
	stream, err := s.conn.Stream(ctx, streams.Bundles)
	if err == nil {
		err = stream.PurgeAll(ctx, valuePrefix+tenant+"."+string(g)+".*")
	}
	return store.Unavailable("remove secrets", tenant, err)
}

// Sweep removes the values of generations that no head names and that were stored long before now. It
// returns the number of generations.
func (s *Store) Sweep(ctx context.Context, now time.Time) (n int, err error) {
	stream, err := s.conn.Stream(ctx, streams.Bundles)
	if err != nil {
		return 0, store.Unavailable("sweep secrets", "", err)
	}
	subjects, err := stream.Subjects(ctx, valuePrefix+">")
	if err != nil {
		return 0, store.Unavailable("sweep secrets", "", err)
	}
	found := make(map[string]map[bundle.Generation]string) // tenant -> generation -> the subject of a value
	for _, subject := range subjects {
		tenant, rest, _ := strings.Cut(strings.TrimPrefix(subject, valuePrefix), ".")
		g, _, _ := strings.Cut(rest, ".")
		if found[tenant] == nil {
			found[tenant] = make(map[bundle.Generation]string)
		}
		found[tenant][bundle.Generation(g)] = subject
	}
	for tenant, generations := range found {
		state, err := s.State(ctx, tenant)
		if err != nil {
			return n, err
		}
		for i := range state.Heads {
			delete(generations, state.Heads[i].Generation)
		}
		for g, subject := range generations {
			m, ok, err := stream.Last(ctx, subject)
			if err == nil && ok && now.Sub(m.Time) > sweepAge {
				n++
				err = s.Remove(ctx, tenant, g)
			}
			if err != nil {
				return n, store.Unavailable("sweep secrets", tenant, err)
			}
		}
	}
	return n, nil
}
