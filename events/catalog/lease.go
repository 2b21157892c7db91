package catalog

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

// hostDocs describes hosts by their leases.
var hostDocs = &fold.Document[string, fleet.Host]{
	Name: "lease", Stream: streams.Hosts, Notify: true,
	Subject: func(h *fleet.Host) string { return hostSubject(h.Host) },
	Key:     func(h *fleet.Host) string { return h.Host },
	Compare: func(a, b fleet.Host) int { return strings.Compare(a.Host, b.Host) },
	Rev:     func(h *fleet.Host) uint64 { return h.Rev },
	Encode:  func(h *fleet.Host) proto.Message { return codec.EncodeLease(&h.Lease) },
	Decode: func(m store.Message) (fleet.Host, error) {
		lease, err := codec.DecodeLease(m.Data)
		return fleet.Host{Lease: lease, Rev: m.Seq, Received: time.Now()}, err
	},
}

// PutLease replaces a host's lease, whose stream sequence is rev (0: no lease yet). It
// returns Conflict as in AppendSandbox: another run of the host, or the reaper, wrote.
func (d *Documents) PutLease(ctx context.Context, lease fleet.Lease, rev uint64) (uint64, error) {
	return hostDocs.Put(ctx, d.conn, &fleet.Host{Lease: lease, Rev: rev})
}

// RenewLease stores the next lease of a run that stored one with stream sequence rev. It
// retries through outages until ctx ends. It returns Fenced if the host's lease belongs to
// another run, or if it states that the host is gone.
//
// A failed expectation does not prove that there is another owner. The ack of an earlier
// renewal may have been lost, a new leader may not have applied it yet, and a server that
// lost power may have lost it. Only the stored lease decides.
func (d *Documents) RenewLease(ctx context.Context, lease fleet.Lease, rev uint64) (uint64, error) {
	for try := 0; ; {
		got, err := d.PutLease(ctx, lease, rev)
		if !kind.Is(err, kind.Conflict) {
			return got, err
		}
		stored, now, ok, err := d.Lease(ctx, lease.Host)
		switch {
		case err != nil:
			return 0, kind.Wrap(kind.Unavailable, "lease", lease.Host, err)
		case ok && fences(&stored, &lease):
			return 0, kind.Newf(kind.Fenced, "lease", lease.Host,
				"epoch %d of the host has ended: the stored lease has epoch %d, gone %t", lease.Epoch, stored.Epoch, stored.Gone)
		}
		rev = now
		if !d.conn.Backoff(ctx, &try) {
			return 0, kind.Wrap(kind.Unavailable, "lease", lease.Host, ctx.Err())
		}
	}
}

// fences reports whether the stored lease ends the run that own belongs to. A lease
// of an older epoch does not: that run ended before own began.
func fences(stored, own *fleet.Lease) bool {
	if stored.Epoch == own.Epoch {
		return stored.Gone || stored.Instance != own.Instance
	}
	return stored.Epoch > own.Epoch
}

// Lease reads a host's lease, and its rev for PutLease, from the leader. ok is false if the
// host never had one.
func (d *Documents) Lease(ctx context.Context, host string) (lease fleet.Lease, rev uint64, ok bool, err error) {
	h, ok, err := hostDocs.Read(ctx, d.conn, hostSubject(host))
	return h.Lease, h.Rev, ok, err
}

// Hosts returns all hosts that ever had a lease, by name, including those gone.
func (v *View) Hosts() []fleet.Host { return v.hosts.List(func(*fleet.Host) bool { return true }) }

// Host returns one host.
func (v *View) Host(name string) (fleet.Host, bool) { return v.hosts.Get(name) }
