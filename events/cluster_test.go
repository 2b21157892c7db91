package events_test

import (
	"sync"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
)

// TORTURE 58: the leader of the output is killed under load; every reader still
// sees each event once, in order.
func TestReadersAndWritersSurviveTheLossOfALeader(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	c := eventstest.StartCluster(t)
	log, other := c.Open(), c.Open()
	const writers, n = 4, 3000
	var wg sync.WaitGroup
	half := make(chan struct{}, writers)
	cont := make(chan struct{})
	for range writers {
		ref := newRef()
		for _, l := range []*events.Log{log, other} {
			r := l.Read(ref, 0)
			wg.Go(func() {
				if got := readAll(t, r, 0); len(got) != n {
					t.Errorf("got %d events, want %d", len(got), n)
				}
			})
		}
		wg.Go(func() {
			w, all := log.Writer(ref, 1), script(n)
			for i := process.Seq(0); i < n; i += 10 {
				if i == n/2 {
					half <- struct{}{}
				}
				appendAll(t, w, all[i:i+10], 10)
			}
		})
	}
	go func() {
		defer close(cont)
		for range writers {
			<-half
		}
		lead := c.Leader("OUT_00")
		if lead < 0 {
			t.Error("no leader")
			return
		}
		c.Stop(lead)
	}()
	wg.Wait()
	<-cont
}
