package keyframe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/keyframe"
	"github.com/millrace/millrace/events/process"
)

const id = process.ID("01jd0000000000000000000000-i1")

func TestFramesAreStored(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	s := log.KeyFrames(1)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := uint64(1); n <= 2*keyframe.Slots; n++ {
		f := keyframe.Frame{Seq: 10 * n, Time: time.Now(), Output: n * keyframe.Every, Data: fmt.Append(nil, n)}
		ok(s.Put(t.Context(), id, n, &f))
	}
	last := keyframe.Frame{Seq: 1 << 40, Time: time.Now(), Output: 7, Data: []byte("last")}
	ok(s.PutLast(t.Context(), id, &last))
	ok(s.PutLast(t.Context(), process.IDOf(id.Token(), "i2"), &last))
	srv.Restart()
	all, err := s.All(t.Context(), id)
	for ; err != nil && t.Context().Err() == nil; all, err = s.All(t.Context(), id) {
		<-time.After(10 * time.Millisecond) // until it has reconnected
	}
	ok(err)
	if n := len(all); n < keyframe.Slots/2 || n > keyframe.Slots+1 {
		t.Fatalf("%d frames", n)
	}
	for i, f := range all[:len(all)-1] {
		if n := f.Output / keyframe.Every; f.Seq != 10*n || string(f.Data) != fmt.Sprint(n) || i > 0 && f.Seq <= all[i-1].Seq {
			t.Fatalf("frame %d: %+v", i, f)
		}
	}
	if f, found, err := s.Last(t.Context(), id); err != nil || !found || f.Seq != last.Seq || f.Output != 7 || string(f.Data) != "last" || all[len(all)-1].Seq != last.Seq {
		t.Errorf("last: %+v, %v, %v", f, found, err)
	}
	other := log.KeyFrames(2)
	if all, err := other.All(t.Context(), id); err != nil || len(all) != 0 {
		t.Errorf("another version of the emulator: %d frames, %v", len(all), err)
	}
}

// A frame ends with the event to which it belongs.
func TestFramesExpireWithTheirEvents(t *testing.T) {
	log := eventstest.OpenWith(t, eventstest.Start(t), events.Config{Retention: time.Hour})
	s := log.KeyFrames(1)
	for i, age := range []time.Duration{time.Hour - 2*time.Second, time.Hour, 2 * time.Hour} {
		f := keyframe.Frame{Seq: uint64(i), Time: time.Now().Add(-age), Output: uint64(i), Data: []byte("x")}
		if err := s.Put(t.Context(), id, uint64(i), &f); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.All(t.Context(), id)
	if err != nil || len(before) > 1 {
		t.Fatalf("%d frames of events that have expired, %v", len(before), err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := s.All(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			return
		}
		<-tick.C
	}
}
