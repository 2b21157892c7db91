package tally

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

// Keep is how long counts are kept.
const Keep = streams.TallyAge

// Counts is what one run of a gateway has counted in a period.
type Counts struct {
	Run    string         `json:"-"`      // of the gateway, a token of a subject
	Period int64          `json:"period"` // its number
	ByKey  map[string]int `json:"counts"`
}

const (
	prefix = "tally."
	// slots is the number of periods of a run that are kept.
	slots = 128
)

// Store is the counts of all gateways. Its methods may be called concurrently.
type Store struct{ conn *store.Conn }

// NewStore returns the counts in the log.
func NewStore(conn *store.Conn) *Store { return &Store{conn} }

// Put stores counts, which replace those of their run and period.
func (s *Store) Put(ctx context.Context, c *Counts) error {
	data, err := json.Marshal(c)
	if err != nil {
		return kind.Wrap(kind.Internal, "store counts", c.Run, err)
	}
	return s.conn.PutLast(ctx, streams.Tallies, fmt.Sprintf("%s%s.%d", prefix, c.Run, c.Period%slots), data)
}

// Follow calls fn for all counts that are stored, then for new ones, until ctx ends or the log is
// closed.
func (s *Store) Follow(ctx context.Context, fn func(*Counts)) error {
	feed, err := s.conn.Follow(streams.Tallies, ">", 0)
	if err != nil {
		return store.Unavailable("follow counts", streams.Tallies, err)
	}
	defer feed.Close()
	for {
		msgs, err := feed.Next(ctx, nil)
		if err != nil {
			return store.Unavailable("follow counts", streams.Tallies, err)
		}
		for _, m := range msgs {
			run, _, ok := strings.Cut(strings.TrimPrefix(m.Subject, prefix), ".")
			c := Counts{Run: run}
			if !ok || json.Unmarshal(m.Data, &c) != nil {
				s.conn.Log().Warn("skip invalid message", "subject", m.Subject, "rev", m.Seq)
				continue
			}
			fn(&c)
		}
	}
}
