package meter

import (
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/usage"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	factPrefix = "meter."
	markBytes  = 12 // of the random mark of a message
)

func subjectOf(tenant, id string) string { return factPrefix + tenant + "." + id }

func mark() []byte {
	raw := make([]byte, markBytes)
	rand.Read(raw)
	return raw
}

func encodeFact(f *usage.Fact) ([]byte, error) {
	m := &pb.UsageFact{
		Kind: f.Kind, StartedNs: codec.Nanos(f.Started), EndedNs: codec.Nanos(f.Ended), LastKnown: f.LastKnown,
		MeasuredNs: codec.Nanos(f.Measured), CounterNs: int64(f.Counter), Attempt: mark(),
		Generation: f.Counted.Generation, After: f.Counted.After, Offset: f.Counted.Offset,
	}
	for i := range f.Days {
		m.Days = append(m.Days, encodeDay(&f.Days[i]))
	}
	data, err := proto.Marshal(m)
	return data, kind.Wrap(kind.Internal, "store usage", f.ID, err)
}

func encodeDay(d *usage.Daily) *pb.UsageDay {
	return &pb.UsageDay{
		Day: int32(d.Day), CpuNs: int64(d.CPU), Sandboxes: d.Sandboxes, Sessions: d.Sessions,
		InputTokens: d.InputTokens, OutputTokens: d.OutputTokens, ToolCalls: d.ToolCalls,
	}
}

func decodeDay(d *pb.UsageDay) usage.Daily {
	return usage.Daily{Day: usage.Day(d.Day), Counters: usage.Counters{
		CPU: time.Duration(d.CpuNs), Sandboxes: d.Sandboxes, Sessions: d.Sessions,
		InputTokens: d.InputTokens, OutputTokens: d.OutputTokens, ToolCalls: d.ToolCalls,
	}}
}

func decodeFact(m store.Message) (usage.Fact, error) {
	tenant, id, _ := strings.Cut(strings.TrimPrefix(m.Subject, factPrefix), ".")
	var b pb.UsageFact
	err := proto.Unmarshal(m.Data, &b)
	if err == nil && len(b.Days) == 0 {
		err = kind.New(kind.Internal, "read usage", id, "the fact has no day")
	}
	f := usage.Fact{
		Tenant: tenant, ID: id, Kind: b.Kind, Started: codec.Time(b.StartedNs), Ended: codec.Time(b.EndedNs), LastKnown: b.LastKnown,
		Measured: codec.Time(b.MeasuredNs), Counter: time.Duration(b.CounterNs), Rev: m.Seq,
		Counted: usage.Position{Generation: b.Generation, After: b.After, Offset: b.Offset},
	}
	for _, d := range b.Days {
		f.Days = append(f.Days, decodeDay(d))
	}
	return f, err
}
