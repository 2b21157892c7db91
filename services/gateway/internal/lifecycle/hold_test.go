package lifecycle

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// E-242, E-244, E-247: a sandbox that is used, or was used last at a time, ends between its idle
// timeout after that and 10 s later, and its deadline is moved seldom.
func TestDeadlinesOfUsedSandboxes(t *testing.T) {
	now := time.Unix(10_000, 0)
	for _, idle := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second, 20 * time.Second, time.Minute, time.Hour} {
		s := sandbox.State{Phase: sandbox.PhaseRunning, Deadline: now.Add(idle)}
		s.Request.Idle = idle
		moves := 0
		for step := range 600 { // it is used for a minute, and checked late
			at := now.Add(time.Duration(step) * 100 * time.Millisecond)
			if step%8 == 0 {
				if to, due := (hold{clients: 1}).moved(&s, at); due {
					s.Deadline = to
					moves++
				}
			}
			if left := s.Deadline.Sub(at); left < idle || left > idle+holdCheck+maxMove {
				t.Fatalf("idle %v: %v after its use it has %v left", idle, at.Sub(now), left)
			}
			if _, due := (hold{used: at}).moved(&s, at.Add(time.Hour)); due {
				t.Fatalf("idle %v: a release after %v moves the deadline", idle, at.Sub(now))
			}
		}
		if most := int(time.Minute/minMove) + 1; moves > most || moves < 2 {
			t.Errorf("idle %v: %d moves a minute, want at most %d", idle, moves, most)
		}
	}
}

func TestMoved(t *testing.T) {
	now := time.Unix(10_000, 0)
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	tests := []struct {
		name    string
		s       sandbox.State
		idle    time.Duration
		hardEnd time.Time
		x       hold
		want    time.Time // zero: it stays
	}{
		{"used", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(2)}, 2 * time.Second, time.Time{}, hold{clients: 3}, at(8)},
		{"used, and late enough", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(3)}, 2 * time.Second, time.Time{}, hold{clients: 1}, time.Time{}},
		{"another client moved it back", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(1)}, time.Minute, time.Time{}, hold{clients: 1}, at(68)},
		{"released", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(1)}, time.Minute, time.Time{}, hold{used: at(-1)}, at(66)},
		{"released in time", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(59)}, time.Minute, time.Time{}, hold{used: at(-1)}, time.Time{}},
		{"E-245: not beyond the hard end", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(1)}, time.Minute, at(30), hold{clients: 1}, at(30)},
		{"at the hard end", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(30)}, time.Minute, at(30), hold{clients: 1}, time.Time{}},
		{"E-243: while it boots", sandbox.State{Phase: sandbox.PhasePlaced}, time.Minute, time.Time{}, hold{clients: 1}, time.Time{}},
		{"while it is paused", sandbox.State{Phase: sandbox.PhasePaused, Deadline: at(-5)}, time.Minute, time.Time{}, hold{clients: 1}, time.Time{}},
		{"after its end", sandbox.State{Phase: sandbox.PhaseDestroyed}, time.Minute, time.Time{}, hold{clients: 1}, time.Time{}},
		{"without an idle timeout", sandbox.State{Phase: sandbox.PhaseRunning, Deadline: at(1)}, 0, time.Time{}, hold{clients: 1}, time.Time{}},
	}
	for _, tt := range tests {
		tt.s.Request.Idle, tt.s.Request.HardEnd = tt.idle, tt.hardEnd
		to, due := tt.x.moved(&tt.s, now)
		if due != !tt.want.IsZero() || due && !to.Equal(tt.want) {
			t.Errorf("%s: %v, %v; want %v", tt.name, to, due, tt.want)
		}
	}
}
