package record_test

import (
	"testing"

	"github.com/millrace/millrace/events/eventstest"
)

// The reader of a new record receives every event as it is stored, and reads nothing from the store.
func TestANewRecordIsReadWithoutRequests(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ref, all := eventstest.NewRef(), eventstest.Script(5)
	requests := eventstest.Requests(t, srv)
	r := log.ReadNew(ref)
	eventstest.AppendAll(t, log.Writer(ref, 1), all, 1)
	if got := eventstest.ReadAll(t, r, 0); len(got) != len(all) {
		t.Errorf("got %d events, want %d", len(got), len(all))
	}
	if n := requests(); n != 0 {
		t.Errorf("%d requests to the store, want 0", n)
	}
}

// What is stored while the reader of a new record is disconnected is read from the store.
func TestANewRecordIsReadAcrossADisconnect(t *testing.T) {
	srv := eventstest.StartListening(t)
	proxy := eventstest.StartProxy(t, srv.Addr())
	log := eventstest.Open(t, srv)
	far := proxy.Open(t)
	all := eventstest.Script(20)
	for _, before := range []int{0, 1, 19} {
		ref := eventstest.NewRef()
		r, w := far.ReadNew(ref), log.Writer(ref, 1)
		eventstest.AppendAll(t, w, all[:before], 1)
		proxy.Cut()
		eventstest.AppendAll(t, w, all[before:], 1)
		if got := eventstest.ReadAll(t, r, 0); len(got) != len(all) {
			t.Errorf("cut after %d: got %d events, want %d", before, len(got), len(all))
		}
	}
}
