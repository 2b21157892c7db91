package events

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// A host's placements are a record of their own in the sandboxes' stream, one
// empty message a placement. It says nothing that the sandboxes' records do not
// say; it is what two schedulers that fill the same place collide on.
const placementPrefix = "sbx._placed."

func placementSubject(host string) string { return placementPrefix + host }

// Placements gives the revision of a host's placements, from the leader. A
// choice made from a View that was synced after this call knows all of them.
func (l *Log) Placements(ctx context.Context, host string) (uint64, error) {
	m, _, err := l.lastOf(ctx, streamSandboxes, placementSubject(host))
	return m.seq, err
}

// PlaceSandbox appends Placed to the record of a sandbox in state s, if nothing
// was appended to that since and nothing was placed on the host since revision
// placements. It gives the new revision of the placements, or an error of
// kind.Conflict if somebody else wrote first. An error of kind.Unavailable means
// that it may or may not be stored: read again, then decide.
func (l *Log) PlaceSandbox(ctx context.Context, s *sandbox.State, to sandbox.Placed, placements uint64) (uint64, error) {
	data, err := encodeSandbox(s.Tenant, s.ID, s.Seq+1, time.Now(), []sandbox.Body{to})
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "place", string(s.ID), err)
	}
	batch := nuid.Next()
	first := batchMsg(placementSubject(to.Host), batch, 1, placements, nil)
	last := batchMsg(sandboxSubject(s.Tenant, s.ID), batch, 2, s.Rev, data)
	last.Header.Set("Nats-Batch-Commit", "1")
	if err := l.nc.PublishMsg(first); err != nil {
		return 0, kind.Wrap(kind.Unavailable, "place", string(s.ID), err)
	}
	seq, err := l.publishMsg(ctx, last)
	switch {
	case errors.Is(err, errExpectation):
		return 0, kind.New(kind.Conflict, "place", string(s.ID), "somebody else placed first")
	case err != nil:
		return 0, err
	}
	return seq - 1, nil // the messages of a batch are stored next to each other
}

func batchMsg(subject, batch string, n int, after uint64, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		"Nats-Batch-Id":                       {batch},
		"Nats-Batch-Sequence":                 {strconv.Itoa(n)},
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(after, 10)},
	}}
}
