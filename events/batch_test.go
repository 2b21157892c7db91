package events_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
)

// Many records are written at once, so that their messages are stored in batches, while the
// server restarts twice.
func TestManyRecordsSurviveRestarts(t *testing.T) {
	const records, n = 40, 100
	srv := eventstest.Start(t)
	log, other := eventstest.Open(t, srv), eventstest.Open(t, srv)
	var wg sync.WaitGroup
	var stored atomic.Int64
	restart := make(chan struct{}, 2)
	for range records {
		ref := eventstest.NewRef()
		r := other.Read(ref, 0)
		wg.Go(func() {
			if got := eventstest.ReadAll(t, r, 0); len(got) != n {
				t.Errorf("got %d events, want %d", len(got), n)
			}
		})
		wg.Go(func() {
			w, all := log.Writer(ref, 1), eventstest.Script(n)
			for len(all) > 0 {
				eventstest.AppendAll(t, w, all[:1], 1)
				all = all[1:]
				if s := stored.Add(1); s == records*n/3 || s == records*n*2/3 {
					restart <- struct{}{}
				}
			}
		})
	}
	for range 2 {
		<-restart
		srv.Restart()
	}
	wg.Wait()
}
