package link_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestWeightCountsText: pending events count with every text that a shim may make long.
func TestWeightCountsText(t *testing.T) {
	long := strings.Repeat("x", 200)
	exit := process.Exit{Cause: process.CauseShimLost, Message: long}
	for _, b := range []process.Body{
		out(1, 0, 200), process.StdinAcked{Command: long}, process.Signaled{Command: long}, process.Failed{Message: long},
		process.Exited{Exit: exit}, process.Finished{Exit: exit},
	} {
		if got := link.Weight(&process.Event{Body: b}); got != wire.EventCost+200 {
			t.Errorf("%T weighs %d", b, got)
		}
	}
}

func exited(code int32) process.Exit { return process.Exit{Code: &code, Cause: process.CauseExited} }

func out(s process.Stream, offset uint64, n int) process.Wrote {
	return process.Wrote{Stream: s, Offset: offset, Data: make([]byte, n)}
}

// TestTrack: which events a shim may send for a process, and which show it to be hostile.
// The last event of each list is the one in question.
func TestTrack(t *testing.T) {
	started := process.Started{PID: 7}
	tests := []struct {
		name   string
		pty    bool
		events []process.Body
		ok     bool
	}{
		{"a complete record", false, []process.Body{started, out(1, 0, 3), out(2, 0, 2), out(1, 3, 1), process.Exited{Exit: exited(0)}, process.Finished{Exit: exited(0)}}, true},
		{"output after the exit", false, []process.Body{started, process.Exited{Exit: exited(0)}, out(1, 0, 1)}, true},
		{"a failed start", false, []process.Body{process.Failed{Kind: 1}, process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}}}, true},
		{"a terminal's output", true, []process.Body{started, out(3, 0, 1)}, true},
		{"output before the start", false, []process.Body{out(1, 0, 1)}, false},
		{"a hole in the output", false, []process.Body{started, out(1, 1, 1)}, false},
		{"output twice", false, []process.Body{started, out(1, 0, 2), out(1, 0, 2)}, false},
		{"an unknown stream", false, []process.Body{started, out(9, 0, 1)}, false},
		{"a terminal's output without one", false, []process.Body{started, out(3, 0, 1)}, false},
		{"stdout of a terminal", true, []process.Body{started, out(1, 0, 1)}, false},
		{"an event after the end", false, []process.Body{started, process.Exited{Exit: exited(0)}, process.Finished{Exit: exited(0)}, out(1, 0, 1)}, false},
		{"two exits", false, []process.Body{started, process.Exited{Exit: exited(0)}, process.Exited{Exit: exited(1)}}, false},
		{"accepted", false, []process.Body{process.Accepted{}}, false},
		{"lost", false, []process.Body{started, process.Lost{}}, false},
		{"gap", false, []process.Body{started, process.Gap{From: 1, To: 2}}, false},
		{"an unknown kind", false, []process.Body{nil}, false},
		{"pid 0", false, []process.Body{process.Started{}}, false},
		{"a code past 255", false, []process.Body{started, process.Exited{Exit: exited(256)}}, false},
		{"a negative code", false, []process.Body{started, process.Exited{Exit: exited(-1)}}, false},
		{"an exit without a code", false, []process.Body{started, process.Exited{Exit: process.Exit{Cause: process.CauseExited}}}, false},
		{"a cause reserved for hostd", false, []process.Body{started, process.Exited{Exit: process.Exit{Cause: process.CauseShimLost}}}, false},
		{"an invalid signal", false, []process.Body{started, process.Signaled{Signal: 65}}, false},
		{"a command that is too long", false, []process.Body{started, process.Signaled{Signal: 9, Command: strings.Repeat("x", 300)}}, false},
		{"a text that is too long", false, []process.Body{process.Failed{Message: strings.Repeat("x", 5000)}}, false},
		{"an invalid text", false, []process.Body{process.Failed{Message: "\xff"}}, false},
		{"a resize without a terminal", false, []process.Body{started, process.Resized{}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			track := link.NewTrack(tt.pty)
			for i, b := range tt.events {
				err := track.Take(&process.Event{Seq: uint64(i + 2), Time: time.Now(), Body: b})
				last := i == len(tt.events)-1
				if ok := err == nil; ok != (tt.ok || !last) || err != nil && !errors.Is(err, link.ErrHostile) {
					t.Fatalf("event %d: %v", i, err)
				}
			}
		})
	}
}

func TestTrackSeq(t *testing.T) {
	for _, seq := range []uint64{0, 1, 3, 1 << 63} {
		track := link.NewTrack(false)
		if err := track.Take(&process.Event{Seq: seq, Body: process.Started{PID: 1}}); !errors.Is(err, link.ErrHostile) {
			t.Errorf("seq %d after 1: %v", seq, err)
		}
	}
}

func TestTrackWindow(t *testing.T) {
	track := link.NewTrack(false)
	seq, offset := uint64(2), uint64(0)
	take := func(b process.Body) error {
		err := track.Take(&process.Event{Seq: seq, Body: b})
		seq++
		return err
	}
	if err := take(process.Started{PID: 1}); err != nil {
		t.Fatal(err)
	}
	for range wire.WindowProcess / wire.MaxData {
		if err := take(out(1, offset, wire.MaxData)); err != nil {
			t.Fatal(err)
		}
		offset += wire.MaxData
	}
	if err := take(out(1, offset, 1)); !errors.Is(err, link.ErrHostile) {
		t.Errorf("past the window: %v", err)
	}
}

func TestTrackCorrectsTimes(t *testing.T) {
	now := time.Now()
	for _, at := range []time.Time{{}, time.Unix(0, 0), now.Add(time.Hour), time.Unix(1<<40, 0)} {
		e := process.Event{Seq: 2, Time: at, Body: process.Started{PID: 1}}
		if err := link.NewTrack(false).Take(&e); err != nil || e.Time.Before(now) || e.Time.After(now.Add(time.Minute)) {
			t.Errorf("%v became %v, %v", at, e.Time, err)
		}
	}
}

// TestTrackResumes: after Resume the offsets are unknown until the first output.
func TestTrackResumes(t *testing.T) {
	track := link.NewTrack(false)
	track.Resume(10)
	for i, step := range []struct {
		body process.Body
		ok   bool
	}{{out(1, 500, 5), true}, {out(2, 9, 1), true}, {out(1, 505, 1), true}, {out(1, 507, 1), false}} {
		if err := track.Take(&process.Event{Seq: uint64(11 + i), Body: step.body}); (err == nil) != step.ok {
			t.Errorf("step %d: %v", i, err)
		}
	}
}
