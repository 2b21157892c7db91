package proctable

import (
	"context"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Put replaces a process's entry, whose stream sequence is rev (0: no entry yet). It returns the
// new rev. It retries through outages until ctx ends and returns Conflict if another writer was
// first.
func Put(ctx context.Context, conn *store.Conn, s *process.Summary, rev uint64) (uint64, error) {
	data, err := codec.EncodeSummary(s)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", string(s.ID), err)
	}
	return conn.Put(ctx, streams.Catalog, subject(s.Host, s.ID), rev, data)
}

// Read reads a process's entry from the leader, and its rev for Put. It returns NotFound if the
// entry does not exist.
func Read(ctx context.Context, conn *store.Conn, host string, id process.ID) (process.Summary, uint64, error) {
	m, ok, err := conn.LastOf(ctx, streams.Catalog, subject(host, id))
	if err != nil {
		return process.Summary{}, 0, err
	}
	if !ok {
		return process.Summary{}, 0, kind.New(kind.NotFound, "read", string(id), "the process is not in the catalog")
	}
	s, err := codec.DecodeSummary(m.Data)
	return s, m.Seq, err
}

func subject(host string, id process.ID) string {
	return "proc." + host + "." + string(id.Sandbox()) + "." + id.Token()
}
