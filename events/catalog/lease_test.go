package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
)

// The stored lease decides who owns it; a failed expectation does not.
func TestARenewalAdoptsItsOwnLeaseAndIsFencedByOthers(t *testing.T) {
	own := fleet.Lease{Host: "h", Epoch: 3, TTL: time.Second, Instance: "own"}
	with := func(change func(*fleet.Lease)) *fleet.Lease {
		l := own
		change(&l)
		return &l
	}
	for _, tt := range []struct {
		name   string
		stored *fleet.Lease // replaces the first; nil: the stream lost it
		fenced bool
	}{
		{"its own, whose ack was lost", with(func(l *fleet.Lease) { l.Load1 = 7 }), false},
		{"lost by the server", nil, false},
		{"of an earlier run", with(func(l *fleet.Lease) { l.Epoch, l.Instance = 2, "other" }), false},
		{"of an earlier run that is gone", with(func(l *fleet.Lease) { l.Epoch, l.Instance, l.Gone = 2, "other", true }), false},
		{"declared gone", with(func(l *fleet.Lease) { l.Gone = true }), true},
		{"of another host with the name", with(func(l *fleet.Lease) { l.Instance = "other" }), true},
		{"of a newer run", with(func(l *fleet.Lease) { l.Epoch, l.Instance = 4, "other" }), true},
		{"of a newer run that is gone", with(func(l *fleet.Lease) { l.Epoch, l.Instance, l.Gone = 4, "other", true }), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := eventstest.Start(t)
			log := eventstest.Open(t, srv)
			first, err := log.PutLease(t.Context(), own, 0)
			if err != nil {
				t.Fatal(err)
			}
			if tt.stored == nil {
				eventstest.Forget(t, srv, "HOSTS")
			} else if _, err := log.PutLease(t.Context(), *tt.stored, first); err != nil {
				t.Fatal(err)
			}
			next := own
			next.Load1 = 9
			rev, err := log.RenewLease(t.Context(), next, first)
			if kind.Is(err, kind.Fenced) != tt.fenced || err != nil && !tt.fenced {
				t.Fatalf("RenewLease: %v, want fenced %t", err, tt.fenced)
			}
			stored, now, _, err := log.Lease(t.Context(), own.Host)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.fenced && (stored.Load1 != 9 || now != rev) {
				t.Errorf("stored %+v at %d, want the renewal at %d", stored, now, rev)
			}
			if tt.fenced && stored.Load1 == 9 {
				t.Error("a fenced run wrote the lease")
			}
		})
	}
}

// Renewals whose acks are lost are stored once each, and succeed.
func TestARenewalSurvivesLostAcks(t *testing.T) {
	srv := eventstest.StartListening(t)
	proxy := eventstest.StartProxy(t, srv.Addr())
	log, other := proxy.Open(t), eventstest.Open(t, srv)
	lease := fleet.Lease{Host: "h", Epoch: 1, TTL: time.Second, Instance: "own"}
	rev, err := log.PutLease(t.Context(), lease, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		proxy.Mute()
		lease.Load1 = float64(i + 1)
		done := make(chan error, 1)
		go func(l fleet.Lease, after uint64) {
			var err error
			rev, err = log.RenewLease(t.Context(), l, after)
			done <- err
		}(lease, rev)
		awaitLoad(t, other.Lease, lease.Load1)
		proxy.Unmute()
		if err := <-done; err != nil {
			t.Fatalf("renewal %d: %v", i, err)
		}
	}
}

// awaitLoad waits until the stored lease has the load.
func awaitLoad(t *testing.T, read func(context.Context, string) (fleet.Lease, uint64, bool, error), load float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		l, _, _, err := read(ctx, "h")
		if err != nil {
			t.Fatal(err)
		}
		if l.Load1 == load {
			return
		}
	}
}
