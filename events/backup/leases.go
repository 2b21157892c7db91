package backup

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/streams"
)

// endLeases stores for each host that it is gone. A lease counts from when a reader receives it, so
// that a restored one would make its host alive for a while. The reaper ends what is left of a
// host that is gone. Leases of gateways end at a time by the clock of the log, which has passed.
func (r *restore) endLeases(ctx context.Context) error {
	s, err := r.js.Stream(ctx, streams.Hosts)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return unavailable(streams.Hosts, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(streams.SourceOf(streams.Hosts)))
	if err != nil {
		return unavailable(streams.Hosts, err)
	}
	for subject := range info.State.Subjects {
		if err := r.endLease(ctx, s, subject); err != nil {
			return unavailable(streams.Hosts, err)
		}
	}
	return nil
}

func (r *restore) endLease(ctx context.Context, s jetstream.Stream, subject string) error {
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return err
	}
	lease, err := codec.DecodeLease(m.Data)
	if err != nil {
		return err
	}
	if lease.Gone || lease.Host != strings.TrimPrefix(subject, "host.") {
		return nil
	}
	lease.Gone = true
	data, err := proto.Marshal(codec.EncodeLease(&lease))
	if err != nil {
		return err
	}
	_, err = r.js.Publish(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(m.Sequence))
	return err
}
