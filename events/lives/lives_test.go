package lives_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/lives"
	"github.com/millrace/millrace/events/process"
)

func all(*process.Summary) bool { return true }

// world writes the catalog of a log.
type world struct {
	t    *testing.T
	log  *events.Log
	revs map[process.ID]uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t, eventstest.Open(t, eventstest.Start(t)), make(map[process.ID]uint64)}
}

// put stores an entry: n names the process, ended whether it has ended.
func (w *world) put(n int, ended bool) {
	w.t.Helper()
	id := process.ID(fmt.Sprintf("01jd%022d-i1", n))
	s := process.Summary{ID: id, Tenant: "t", Host: "h", PID: uint32(n), Started: time.Unix(int64(n), 0), Spec: process.Spec{Cmd: "c", Env: map[string]string{"K": "canary"}}}
	if ended {
		code := int32(0)
		s.Ended, s.Exit, s.Last = time.Unix(int64(n+1), 0), &process.Exit{Code: &code, Cause: process.CauseExited}, 5
	}
	rev, err := w.log.PutSummary(w.t.Context(), &s, w.revs[id])
	if err != nil {
		w.t.Fatal(err)
	}
	w.revs[id] = rev
}

// read returns what is next for a reader, as "+1" and "-1" for the start and the end of process 1.
func read(t *testing.T, f *lives.Feed, c *lives.Cursor) (out []string) {
	t.Helper()
	for {
		found, err := f.Next(t.Context(), c, all, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			return out
		}
		for _, ch := range found {
			if ch.Process.Spec.Env != nil {
				t.Error("a change has an environment")
			}
			if ch.Started {
				out = append(out, fmt.Sprintf("+%d", ch.Process.PID))
			}
			if ch.Ended {
				out = append(out, fmt.Sprintf("-%d", ch.Process.PID))
			}
		}
	}
}

// start runs a feed until stop is called, and returns once it has the catalog's end.
func (w *world) start(f *lives.Feed) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	running := f.Changed()
	go func() { done <- f.Run(ctx) }()
	<-running
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("run: %v", err)
		}
	}
}

// has waits until a feed has the last entry that was stored.
func (w *world) has(f *lives.Feed) {
	w.t.Helper()
	var last uint64
	for _, rev := range w.revs {
		last = max(last, rev)
	}
	for {
		changed := f.Changed()
		c := lives.Cursor{At: last - 1}
		if f.Skip(&c, all) {
			return
		}
		select {
		case <-changed:
		case <-w.t.Context().Done():
			w.t.Fatal("the feed does not have the last entry")
		}
	}
}

func TestStartsAndEndsAreReadInOrder(t *testing.T) {
	w := newWorld(t)
	w.put(1, false)
	w.put(2, false)
	w.put(1, true)
	f := w.log.Lives()
	defer w.start(f)()
	var early, late lives.Cursor
	if got, want := read(t, f, &early), []string{"+2", "+1", "-1"}; !slices.Equal(got, want) {
		t.Errorf("stored before: got %v, want %v", got, want)
	}
	w.put(3, false)
	w.has(f)
	if got, want := read(t, f, &early), []string{"+3"}; !slices.Equal(got, want) {
		t.Errorf("a start: got %v, want %v", got, want)
	}
	w.put(3, true)
	w.put(2, true)
	w.has(f)
	// The start of 2 is older than the feed: it may have been replaced before a reader came.
	if got, want := read(t, f, &early), []string{"-3", "+2", "-2"}; !slices.Equal(got, want) {
		t.Errorf("ends: got %v, want %v", got, want)
	}
	if got, want := read(t, f, &late), []string{"+1", "-1", "+3", "-3", "+2", "-2"}; !slices.Equal(got, want) {
		t.Errorf("a reader that was away: got %v, want %v", got, want)
	}
	if more := f.Skip(&early, all); more {
		t.Error("there is more after the end")
	}
}

// A reader that falls out of the window gets the start of a process that it did not get before its
// entry was replaced.
func TestReaderBehindTheWindowMissesNothing(t *testing.T) {
	const many = 100
	w := newWorld(t)
	f := w.log.Lives()
	f.SetWindow(many / 4)
	defer w.start(f)()
	w.put(1, false)
	w.has(f)
	var c lives.Cursor
	if got := read(t, f, &c); !slices.Equal(got, []string{"+1"}) {
		t.Fatalf("got %v", got)
	}
	w.put(2, false)
	for n := 3; n < many; n++ {
		w.put(n, true)
	}
	w.put(2, true)
	w.put(1, true)
	w.has(f)
	got := read(t, f, &c)
	count := make(map[string]int)
	for _, s := range got {
		count[s]++
	}
	for n := 2; n < many; n++ {
		if count[fmt.Sprintf("+%d", n)] != 1 || count[fmt.Sprintf("-%d", n)] != 1 {
			t.Fatalf("process %d: %d starts and %d ends", n, count[fmt.Sprintf("+%d", n)], count[fmt.Sprintf("-%d", n)])
		}
	}
	if count["-1"] != 1 {
		t.Errorf("process 1 ended %d times", count["-1"])
	}
}

func TestBeforeFindsTheEntriesSinceATime(t *testing.T) {
	w := newWorld(t)
	f := w.log.Lives()
	w.put(1, true)
	since := time.Now()
	w.put(2, true)
	at, err := f.Before(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	c := lives.Cursor{At: at}
	if got, want := read(t, f, &c), []string{"+2", "-2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if at, err = f.Before(t.Context(), time.Now().Add(time.Hour)); err != nil || at != c.At {
		t.Errorf("in the future: got %d, %v, want %d", at, err, c.At)
	}
}

// A feed that runs again does not take entries of before for those that it missed in between.
func TestFeedThatRunsAgainHasNoHole(t *testing.T) {
	w := newWorld(t)
	f := w.log.Lives()
	f.SetWindow(4)
	stop := w.start(f)
	for n := 1; n <= 8; n++ {
		w.put(n, true)
	}
	w.has(f)
	stop()
	c := lives.Cursor{At: w.revs[process.ID(fmt.Sprintf("01jd%022d-i1", 8))]}
	w.put(9, true)
	w.put(10, true)
	defer w.start(f)()
	w.put(11, true)
	w.has(f)
	if got, want := read(t, f, &c), []string{"+9", "-9", "+10", "-10", "+11", "-11"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
