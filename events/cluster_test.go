package events_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
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

// TORTURE 59: with two of three servers away, what is stored is read, its end
// included, and nothing is stored.
func TestAMinorityIsReadAndNotWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	c := eventstest.StartCluster(t)
	log := c.Open()
	ended, running := newRef(), newRef()
	const n = 100
	appendAll(t, log.Writer(ended, 1), script(n), 10)
	w, all := log.Writer(running, 1), script(n)
	appendAll(t, w, all[:n/2], 10)
	lead := c.Leader("OUT_00")
	c.Stop(lead)
	c.Stop((lead + 1) % 3)
	if tip, err := log.Glance(t.Context(), ended); err != nil || tip.Finished == nil || tip.Last != n {
		t.Errorf("the end of an ended record: %+v, %v", tip, err)
	}
	if got := readAll(t, log.Read(ended, 0), 0); len(got) != n {
		t.Errorf("an ended record: %d events, want %d", len(got), n)
	}
	for lags := false; !lags; { // at first the one that is left may lead, and not know that it is alone
		tip, err := log.Glance(t.Context(), running)
		if err != nil || tip.Finished != nil || tip.Last != n/2 {
			t.Fatalf("the end of a running record: %+v, %v", tip, err)
		}
		lags = tip.Lags
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.Append(ctx, all[n/2:n/2+1]); !kind.Is(err, kind.Unavailable) {
		t.Errorf("an append: %v", err)
	}
	c.Resume(lead)
	appendAll(t, w, all[n/2:], 10)
	if got := readAll(t, log.Read(running, 0), 0); len(got) != n {
		t.Errorf("a running record: %d events, want %d", len(got), n)
	}
}

// What is asked for first may be nearly all the room that the servers have: it must
// not be asked for when others have a part of it, of which the servers don't know
// yet. A server that promised too much refuses to take any of it back.
func TestStreamsFitWhereAClusterHasHardlyMoreThanWhatIsAskedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("servers tell of their room every ten seconds")
	}
	for _, beside := range []int64{1, 300 << 20} {
		t.Run(strconv.FormatInt(beside, 10), func(t *testing.T) {
			t.Parallel() // it waits for the most part
			log := eventstest.StartClusterOf(t, 2<<30+beside).Open()
			appendAll(t, log.Writer(newRef(), 1), script(4), 2)
		})
	}
}
