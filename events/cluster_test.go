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

// The leader of the output is stopped under load. Every reader still gets each event once,
// in order.
func TestReadersAndWritersSurviveTheLossOfALeader(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	c := eventstest.StartCluster(t)
	log, other := c.Open(), c.Open()
	const writers, n = 8, 1500
	var wg sync.WaitGroup
	half := make(chan struct{}, writers)
	cont := make(chan struct{})
	for range writers {
		ref := eventstest.NewRef()
		for _, l := range []*events.Log{log, other} {
			r := l.Read(ref, 0)
			wg.Go(func() {
				if got := eventstest.ReadAll(t, r, 0); len(got) != n {
					t.Errorf("got %d events, want %d", len(got), n)
				}
			})
		}
		wg.Go(func() {
			w, all := log.Writer(ref, 1), eventstest.Script(n)
			for i := process.Seq(0); i < n; i += 10 {
				if i == n/2 {
					half <- struct{}{}
				}
				eventstest.AppendAll(t, w, all[i:i+10], 10)
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

// With two of three servers down, stored records can be read, including their end, and
// nothing can be stored.
func TestAMinorityServesReadsButNoWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	c := eventstest.StartCluster(t)
	log := c.Open()
	ended, running := eventstest.NewRef(), eventstest.NewRef()
	const n = 100
	eventstest.AppendAll(t, log.Writer(ended, 1), eventstest.Script(n), 10)
	w, all := log.Writer(running, 1), eventstest.Script(n)
	eventstest.AppendAll(t, w, all[:n/2], 10)
	lead := c.Leader("OUT_00")
	c.Stop(lead)
	c.Stop((lead + 1) % 3)
	if tail, err := log.StaleTail(t.Context(), ended); err != nil || tail.Finished == nil || tail.Last != n {
		t.Errorf("the end of an ended record: %+v, %v", tail, err)
	}
	if got := eventstest.ReadAll(t, log.Read(ended, 0), 0); len(got) != n {
		t.Errorf("an ended record: %d events, want %d", len(got), n)
	}
	for lags := false; !lags; { // at first the remaining server may still believe that it leads
		tail, err := log.StaleTail(t.Context(), running)
		if err != nil || tail.Finished != nil || tail.Last != n/2 {
			t.Fatalf("the end of a running record: %+v, %v", tail, err)
		}
		lags = tail.Stale
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.Append(ctx, all[n/2:n/2+1]); !kind.Is(err, kind.Unavailable) {
		t.Errorf("an append: %v", err)
	}
	c.Resume(lead)
	eventstest.AppendAll(t, w, all[n/2:], 10)
	if got := eventstest.ReadAll(t, log.Read(running, 0), 0); len(got) != n {
		t.Errorf("a running record: %d events, want %d", len(got), n)
	}
}

// The first request may need nearly all the disk space of the servers. It must not come
// when others hold a part of it that the servers do not know of yet: a server that has
// reserved too much refuses to release any.
func TestStreamsFitInAClusterWithHardlyEnoughDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("servers report their capacity every ten seconds")
	}
	for _, beside := range []int64{1, 300 << 20} {
		t.Run(strconv.FormatInt(beside, 10), func(t *testing.T) {
			t.Parallel() // it mostly waits
			log := eventstest.StartClusterOf(t, 2<<30+beside).Open()
			eventstest.AppendAll(t, log.Writer(eventstest.NewRef(), 1), eventstest.Script(4), 2)
		})
	}
}
