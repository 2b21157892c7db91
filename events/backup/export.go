package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// idle is how long a read waits for a message before it looks whether there is one: the next one
// may have been removed meanwhile.
const idle = 2 * time.Second

// export reads what was stored in a stream since base, which is nil for everything.
func (b *backup) export(ctx context.Context, name string, base *Stream) (*Stream, error) {
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, unavailable(name, err)
	}
	base, err = continued(ctx, s, base)
	if err != nil {
		return nil, unavailable(name, err)
	}
	info := s.CachedInfo()
	if base != nil && base.LastSeq == info.State.LastSeq && base.Messages == info.State.Msgs && base.FirstSeq == info.State.FirstSeq {
		same := *base
		same.Config = info.Config
		return &same, nil
	}
	out := &Stream{}
	if base != nil {
		*out = *base
		out.Live, out.LiveUntil = nil, 0
		out.Parts = slices.Clone(base.Parts)
		if !isOutput(name) {
			if info, err = s.Info(ctx, jetstream.WithSubjectFilter(">")); err != nil {
				return nil, unavailable(name, err)
			}
			out.LiveUntil = info.State.LastSeq
			if out.Live, err = b.writeLive(name, info.State.Subjects); err != nil {
				return nil, err
			}
		}
	}
	out.Config, out.Created = info.Config, info.Created
	out.FirstSeq, out.Messages = info.State.FirstSeq, info.State.Msgs
	from := out.LastSeq + 1
	out.LastSeq = max(info.State.LastSeq, out.LastSeq)
	if info.State.LastSeq < from {
		return out, nil
	}
	return out, b.read(ctx, s, out, max(from, info.State.FirstSeq))
}

// continued returns base if the stream is the one that it describes and still has what was read of
// it, or nil: then the stream is read from its beginning.
func continued(ctx context.Context, s jetstream.Stream, base *Stream) (*Stream, error) {
	info := s.CachedInfo()
	if base == nil || !info.Created.Equal(base.Created) || info.State.LastSeq < base.LastSeq {
		return nil, nil //nolint:nilnil // no base
	}
	// A server that lost its last messages in a power failure stores others under their sequences.
	if base.LastRead == 0 || base.LastRead < info.State.FirstSeq {
		return base, nil
	}
	m, err := s.GetMsg(ctx, base.LastRead)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return base, nil
	case err != nil:
		return nil, err
	case !m.Time.Equal(base.LastTime):
		return nil, nil //nolint:nilnil // another stream
	}
	return base, nil
}

// writeLive stores the subjects of a stream with their number of messages.
func (b *backup) writeLive(name string, subjects map[string]uint64) (*Part, error) {
	w, err := newPart(b.Dir, b.id, name+".live", b.Key)
	if err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		if err := w.add(&archive.Header{Name: subject, Sequence: subjects[subject]}, nil, nil); err != nil {
			w.abandon()
			return nil, err
		}
	}
	return w.finish()
}

// read stores the messages of a stream from a sequence on. Output is only appended, so that the
// read ends at the message that was the last one when it began. In other streams a message may be
// replaced by a later one during the read, so that the read continues until no message is left.
func (b *backup) read(ctx context.Context, s jetstream.Stream, out *Stream, from uint64) error {
	name := out.Config.Name
	_, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return unavailable(name, err)
	}
	w, err := newPart(b.Dir, b.id, name+".part", b.Key)
	if err != nil {
		return err
	}
	if err := b.readTo(ctx, s, out, from, w); err != nil {
		w.abandon()
		return err
	}
	part, err := w.finish()
	if err != nil {
		return err
	}
	out.Parts = append(out.Parts, *part)
	b.Progress(name, part)
	return nil
}

func (b *backup) readTo(ctx context.Context, s jetstream.Stream, out *Stream, from uint64, w *partWriter) error {
	name, end := out.Config.Name, out.LastSeq
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, InactiveThreshold: time.Minute})
	if err != nil {
		return unavailable(name, err)
	}
	it, err := c.Messages(jetstream.PullMaxBytes(32 << 20))
	if err != nil {
		return unavailable(name, err)
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextMaxWait(idle))
		if errors.Is(err, nats.ErrTimeout) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(">")); errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			continue
		}
		if err != nil {
			return unavailable(name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return unavailable(name, err)
		}
		seq := meta.Sequence.Stream
		if isOutput(name) && seq > end {
			return nil
		}
		h := archive.Header{Name: msg.Subject(), Timestamp: meta.Timestamp.UnixNano(), Sequence: seq}
		if err := w.add(&h, encodeHeader(msg.Headers()), msg.Data()); err != nil {
			return fmt.Errorf("write backup of stream %s: %w", name, err)
		}
		from = seq + 1
		out.LastRead, out.LastTime, out.LastSeq = seq, meta.Timestamp, max(out.LastSeq, seq)
		if meta.NumPending == 0 || isOutput(name) && seq == end {
			return nil
		}
	}
}

// encodeHeader returns a message's header as the servers store it.
func encodeHeader(h nats.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	var out bytes.Buffer
	io.WriteString(&out, "NATS/1.0\r\n") //nolint:errcheck // into memory
	for _, key := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[key] {
			fmt.Fprintf(&out, "%s: %s\r\n", key, value)
		}
	}
	io.WriteString(&out, "\r\n") //nolint:errcheck // into memory
	return out.Bytes()
}

func isOutput(stream string) bool { return strings.HasPrefix(stream, "OUT_") }
