package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// DecideSandbox appends body to the record of a sandbox in state s, if no sandbox's record
// has changed since revision rev. Thus a choice between hosts stands only if it was based
// on everything stored. It returns the new revision, or an error of kind.Conflict if
// another writer was first. After an error of kind.Unavailable, body may or may not be
// stored: read again, then decide.
func (d *Documents) DecideSandbox(ctx context.Context, s *sandbox.State, rev uint64, body sandbox.Body) (uint64, error) {
	data, err := codec.EncodeSandbox(s.Tenant, s.ID, s.Seq+1, time.Now(), []sandbox.Body{body})
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "place", string(s.ID), err)
	}
	got, err := d.conn.PublishAtEnd(ctx, sandboxSubject(s.Tenant, s.ID), rev, data)
	if errors.Is(err, store.ErrExpectation) {
		return 0, kind.New(kind.Conflict, "place", string(s.ID), "another writer was first")
	}
	return got, err
}
