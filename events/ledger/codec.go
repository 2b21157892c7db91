package ledger

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/usage"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Subjects are ledger.<tenant>.<part>, and for entries and days their keys.
const (
	prefix    = "ledger."
	entryPart = "entry"
	dayPart   = "day"
	topupPart = "topup"

	markBytes = 12 // of the random mark of a message
)

func (e *Entry) subject() string { return prefix + e.Tenant + "." + entryPart + "." + e.Key() }

func daySubject(tenant string, d usage.Day) string {
	return prefix + tenant + "." + dayPart + "." + strconv.Itoa(int(d))
}

func topupSubject(tenant string) string { return prefix + tenant + "." + topupPart }

// split returns the tenant and the part of a subject.
func split(subject string) (tenant, part string) {
	tenant, rest, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
	part, _, _ = strings.Cut(rest, ".")
	return tenant, part
}

func mark() []byte {
	raw := make([]byte, markBytes)
	rand.Read(raw)
	return raw
}

func encode(m proto.Message) ([]byte, error) {
	data, err := proto.Marshal(m)
	return data, kind.Wrap(kind.Internal, "store credits", "", err)
}

func encodeEntry(e *Entry) ([]byte, error) {
	return encode(&pb.LedgerEntry{Id: e.ID, Kind: e.Kind, Cents: e.Cents, AtNs: codec.Nanos(e.At), Attempt: mark()})
}

func decodeEntry(m store.Message) (Entry, error) {
	var b pb.LedgerEntry
	err := proto.Unmarshal(m.Data, &b)
	tenant, _ := split(m.Subject)
	return Entry{tenant, b.Id, b.Kind, b.Cents, codec.Time(b.AtNs), m.Seq}, err
}

func encodeDay(d *Day) ([]byte, error) {
	return encode(&pb.LedgerDay{
		Day: int32(d.Daily.Day), CpuNs: int64(d.CPU), Sandboxes: d.Sandboxes, Sessions: d.Sessions,
		InputTokens: d.InputTokens, OutputTokens: d.OutputTokens, ToolCalls: d.ToolCalls,
		PriceCpuHour: d.Price.CPUHour, Cents: d.Cents, Settled: d.Settled, Attempt: mark(),
	})
}

func decodeDay(m store.Message) (Day, error) {
	var b pb.LedgerDay
	err := proto.Unmarshal(m.Data, &b)
	used := usage.Daily{Day: usage.Day(b.Day), Counters: usage.Counters{
		CPU: time.Duration(b.CpuNs), Sandboxes: b.Sandboxes, Sessions: b.Sessions,
		InputTokens: b.InputTokens, OutputTokens: b.OutputTokens, ToolCalls: b.ToolCalls,
	}}
	return Day{used, usage.Price{CPUHour: b.PriceCpuHour}, b.Cents, b.Settled, m.Seq}, err
}

func encodeTopup(t *Topup, event string) ([]byte, error) {
	return encode(&pb.LedgerTopup{
		Enabled: t.Enabled, Threshold: t.Threshold, Amount: t.Amount, Customer: t.Customer,
		Number: t.Number, Pending: t.Pending, AskedNs: codec.Nanos(t.Asked), Event: event, Attempt: mark(),
	})
}

func decodeTopup(m store.Message) (Topup, error) {
	var b pb.LedgerTopup
	err := proto.Unmarshal(m.Data, &b)
	tenant, _ := split(m.Subject)
	return Topup{
		Tenant: tenant, Enabled: b.Enabled, Threshold: b.Threshold, Amount: b.Amount, Customer: b.Customer,
		Number: b.Number, Pending: b.Pending, Asked: codec.Time(b.AskedNs), Rev: m.Seq,
	}, err
}
