package catalog

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Sample is the resource use of a sandbox at one moment.
type Sample struct {
	Time        time.Time
	CPU         time.Duration // CPU time since the sandbox was created
	MemoryBytes uint64
	DiskBytes   uint64
	Processes   uint32
}

// MaxSamples is the maximum number of samples kept per sandbox.
const MaxSamples = streams.MaxSamples

func useSubject(host string, id sandbox.ID) string { return "use." + host + "." + string(id) }

// PutSample stores a sample in a single attempt, because a lost sample does no harm.
func (d *Documents) PutSample(ctx context.Context, host string, id sandbox.ID, s Sample) error {
	data, err := proto.Marshal(&pb.UseSample{
		TimeNs: codec.Nanos(s.Time), CpuNs: int64(s.CPU), MemoryBytes: s.MemoryBytes, DiskBytes: s.DiskBytes, Processes: s.Processes,
	})
	if err != nil {
		return kind.Wrap(kind.Internal, "put sample", string(id), err)
	}
	_, err = d.conn.PublishPlain(ctx, useSubject(host, id), data)
	return err
}

// Samples returns the stored samples of a sandbox since a time, oldest first; the zero time
// means all.
func (d *Documents) Samples(ctx context.Context, host string, id sandbox.ID, since time.Time) ([]Sample, error) {
	req := store.GetRequest{Next: useSubject(host, id), Batch: MaxSamples + 1, MaxBytes: store.BatchBytes, Seq: 1}
	if !since.IsZero() {
		req.Seq, req.StartTime = 0, &since
	}
	msgs, err := d.conn.DirectGet(ctx, streams.Use, req)
	if err != nil {
		return nil, err
	}
	return decodeSamples(msgs)
}

func decodeSamples(msgs []store.Message) ([]Sample, error) {
	out := make([]Sample, 0, len(msgs))
	for _, m := range msgs {
		var b pb.UseSample
		if err := proto.Unmarshal(m.Data, &b); err != nil {
			return nil, kind.Wrap(kind.Internal, "read samples", m.Subject, err)
		}
		out = append(out, Sample{
			Time: codec.Time(b.TimeNs), CPU: time.Duration(b.CpuNs),
			MemoryBytes: b.MemoryBytes, DiskBytes: b.DiskBytes, Processes: b.Processes,
		})
	}
	return out, nil
}
