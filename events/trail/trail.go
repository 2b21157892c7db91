// Package trail stores the audit trail in the log. Each chain has its own subject and one writer.
package trail

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const prefix = "audit."

// Trail is the audit trail in the log. Its methods may be called concurrently.
type Trail struct{ conn *store.Conn }

// New returns the trail of a log.
func New(conn *store.Conn) *Trail { return &Trail{conn} }

// AppendAudit stores links of a chain, all or none, after the message with stream sequence rev, and
// returns the new one. It retries through outages until ctx ends.
func (t *Trail) AppendAudit(ctx context.Context, chain string, rev uint64, links []audit.Link) (uint64, error) {
	b := &pb.AuditBatch{}
	for i := range links {
		l := &links[i]
		b.Links = append(b.Links, &pb.AuditLink{Prev: l.Prev[:], Hash: l.Hash[:], Entry: l.Entry})
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", chain, err)
	}
	return t.conn.Put(ctx, streams.Audit, prefix+chain, rev, data)
}

// ReadAudit returns the next links in the order in which they were stored, from a position on, and
// the position after them. The first position is 0. Without further links it returns none.
func (t *Trail) ReadAudit(ctx context.Context, from uint64) (links []audit.Link, next uint64, err error) {
	all, err := t.conn.GetFrom(ctx, streams.Audit, streams.SourceOf(streams.Audit), from, store.BatchSize)
	next = from
	for _, m := range all {
		var b pb.AuditBatch
		if err := proto.Unmarshal(m.Data, &b); err != nil {
			return nil, from, kind.Wrap(kind.Internal, "read audit trail", "", err)
		}
		for _, l := range b.Links {
			link := audit.Link{Entry: l.Entry}
			if copy(link.Prev[:], l.Prev) != len(link.Prev) || copy(link.Hash[:], l.Hash) != len(link.Hash) {
				return nil, from, kind.New(kind.Internal, "read audit trail", "", "a hash is truncated")
			}
			links = append(links, link)
		}
		next = m.Seq + 1
	}
	return links, next, store.Unavailable("read", streams.Audit, err)
}
