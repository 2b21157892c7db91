package attachment

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	sessionPrefix = "attach.session."
	gatewayPrefix = "attach.gateway."
	writerPrefix  = "attach.writer."

	// leaseAge is the age at which the lease of a run that has ended is removed, unless a session
	// still names the run. It is far above unknownAge.
	leaseAge = time.Hour
	// endedAge is the age at which a session that has ended is removed.
	endedAge = 10 * time.Minute
)

// sessions is how sessions are stored. Their key is the end of the subject.
var sessions = &fold.Document[string, Session]{
	Name: "session", Stream: streams.Attachments,
	Subject: func(x *Session) string { return sessionPrefix + keyOf(x.Tenant, x.ID) },
	Key:     func(x *Session) string { return keyOf(x.Tenant, x.ID) },
	Compare: func(a, b Session) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) },
	Rev:     func(x *Session) uint64 { return x.Rev },
	Encode: func(x *Session) proto.Message {
		return &pb.AttachedSession{
			Id: x.ID, Tenant: x.Tenant, Surface: x.Surface, Sandbox: string(x.Sandbox), Owned: x.Owned, Phase: uint32(x.Phase),
			Gateway: x.Gateway, Client: x.Client, Terminate: x.Policy.Terminate, TtlNs: int64(x.Policy.TTL),
		}
	},
	Decode: decodeSession,
	Over:   func(x *Session) (time.Time, bool) { return x.Since, x.Phase == Ended },
	Keep:   endedAge,
}

func keyOf(tenant, id string) string { return tenant + "." + id }

func decodeSession(m store.Message) (Session, error) {
	var b pb.AttachedSession
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return Session{}, err
	}
	sbx, err := sandbox.ParseID(b.Sandbox)
	return Session{
		ID: b.Id, Tenant: b.Tenant, Surface: b.Surface, Sandbox: sbx, Owned: b.Owned,
		Policy: Policy{Terminate: b.Terminate, TTL: time.Duration(b.TtlNs)},
		Phase:  Phase(b.Phase), Gateway: b.Gateway, Client: b.Client, Since: m.Time, Rev: m.Seq,
	}, err
}

// lease is the lease of a run of a gateway.
type lease struct {
	fleet.Host
	stored time.Time
}

// ends returns when the lease ends unless it is renewed, by the clock of the log.
func (l *lease) ends() time.Time { return l.stored.Add(l.TTL) }

// leases is how leases are stored. Each ends by itself.
var leases = &fold.Document[string, lease]{
	Name: "gateway", Stream: streams.Attachments,
	Subject: func(l *lease) string { return gatewayPrefix + l.Host.Host },
	Key:     func(l *lease) string { return l.Host.Host },
	Compare: func(a, b lease) int { return strings.Compare(a.Host.Host, b.Host.Host) },
	Encode:  func(l *lease) proto.Message { return &pb.GatewayLease{Run: l.Host.Host, TtlNs: int64(l.TTL)} },
	Decode: func(m store.Message) (lease, error) {
		var b pb.GatewayLease
		err := proto.Unmarshal(m.Data, &b)
		run := strings.TrimPrefix(m.Subject, gatewayPrefix)
		return lease{
			Host:   fleet.Host{Lease: fleet.Lease{Host: run, TTL: time.Duration(b.TtlNs)}, Rev: m.Seq, Received: time.Now()},
			stored: m.Time,
		}, err
	},
	Over: func(l *lease) (time.Time, bool) { return l.ends(), true },
	Keep: leaseAge,
}

// writers is how writers of terminals are stored. Their key is the end of the subject.
var writers = &fold.Document[string, Writer]{
	Name: "writer", Stream: streams.Attachments,
	Subject: func(w *Writer) string { return writerPrefix + keyOf(w.Tenant, string(w.Process)) },
	Key:     func(w *Writer) string { return keyOf(w.Tenant, string(w.Process)) },
	Compare: func(a, b Writer) int { return strings.Compare(string(a.Process), string(b.Process)) },
	Rev:     func(w *Writer) uint64 { return w.Rev },
	Encode: func(w *Writer) proto.Message {
		return &pb.TerminalWriter{
			Tenant: w.Tenant, Process: string(w.Process), Lease: w.Holder.Lease[:], Name: w.Holder.Name, SinceNs: codec.Nanos(w.Holder.Since),
			Gateway: w.Gateway, Asked: w.Asked.Lease[:], AskedName: w.Asked.Name, AskedNs: codec.Nanos(w.Asked.Since), Attempt: NewID(),
		}
	},
	Decode: func(m store.Message) (Writer, error) {
		var b pb.TerminalWriter
		err := proto.Unmarshal(m.Data, &b)
		w := Writer{
			Tenant: b.Tenant, Process: process.ID(b.Process), Gateway: b.Gateway, Stored: m.Time, Received: time.Now(), Rev: m.Seq,
			Holder: Claim{Name: b.Name, Since: codec.Time(b.SinceNs)}, Asked: Claim{Name: b.AskedName, Since: codec.Time(b.AskedNs)},
		}
		copy(w.Holder.Lease[:], b.Lease)
		copy(w.Asked.Lease[:], b.Asked)
		return w, err
	},
	Over: func(w *Writer) (time.Time, bool) { return w.Stored, true }, // each ends by itself
	Keep: endedAge,
}
