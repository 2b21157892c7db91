package reaper

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/due"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

func TestAgenda(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	tests := []struct {
		name   string
		states []sandbox.State
		due    []sandbox.ID
		wait   time.Duration
	}{
		{"without sandboxes nothing is due", nil, nil, time.Minute},
		{"a passed deadline is due", []sandbox.State{{ID: "a", Phase: sandbox.PhaseRunning, Deadline: at(999)}}, []sandbox.ID{"a"}, time.Minute},
		{"a deadline is due when it is reached", []sandbox.State{{ID: "a", Phase: sandbox.PhaseRunning, Deadline: now}}, []sandbox.ID{"a"}, time.Minute},
		{"the next deadline is waited for", []sandbox.State{{ID: "a", Phase: sandbox.PhaseRunning, Deadline: at(1020)}, {ID: "b", Phase: sandbox.PhasePlaced, Deadline: at(1005)}}, nil, 5 * time.Second},
		{"a sandbox that does not run in time is due, whatever its lifetime", []sandbox.State{{ID: "a", Phase: sandbox.PhasePlaced, Lifetime: time.Second, Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(999)}}}, {ID: "b", Phase: sandbox.PhaseQueued, Lifetime: time.Second, Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(1007)}}}}, []sandbox.ID{"a"}, 7 * time.Second},
		{"a running sandbox is not late", []sandbox.State{{ID: "a", Phase: sandbox.PhaseRunning, Deadline: at(1003), Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(999)}}}}, nil, 3 * time.Second},
		{"without a deadline it is never due", []sandbox.State{{ID: "a", Phase: sandbox.PhaseRunning}}, nil, time.Minute},
		{"a stopping sandbox is not due", []sandbox.State{{ID: "a", Phase: sandbox.PhaseStopping, Deadline: at(1)}}, nil, time.Minute},
		{"an ended sandbox is not due", []sandbox.State{{ID: "a", Phase: sandbox.PhaseLost, Deadline: at(1)}, {ID: "b", Phase: sandbox.PhaseDestroyed, Deadline: at(1)}}, nil, time.Minute},
		{"a paused sandbox has no deadline", []sandbox.State{{ID: "a", Phase: sandbox.PhasePaused, Deadline: at(1), InPauses: sandbox.InPauses{PausedSince: at(1)}}}, nil, time.Minute},
		{"a pausing or resuming sandbox has no deadline", []sandbox.State{{ID: "a", Phase: sandbox.PhasePausing, Deadline: at(1)}, {ID: "b", Phase: sandbox.PhaseResuming, Deadline: at(1)}}, nil, time.Minute},
		{"a sandbox paused for four weeks is due", []sandbox.State{{ID: "a", Phase: sandbox.PhasePaused, InPauses: sandbox.InPauses{PausedSince: now.Add(-due.MaxPaused)}}}, []sandbox.ID{"a"}, time.Minute},
		{"a request that was never placed is due", []sandbox.State{{ID: "a", Phase: sandbox.PhaseRequested, Deadline: at(1)}}, []sandbox.ID{"a"}, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := agenda{now: now}
			for i := range tt.states {
				a.visit(&tt.states[i])
			}
			if !slices.Equal(a.due, tt.due) || a.wait(time.Minute) != tt.wait {
				t.Errorf("due %v, wait %v; want %v, %v", a.due, a.wait(time.Minute), tt.due, tt.wait)
			}
		})
	}
}

// Nothing that a client uses ends because the log was unreachable: for a while, sandboxes with an idle
// timeout end only at their hard end.
func TestIdleSandboxesHaveAGracePeriod(t *testing.T) {
	now := time.Unix(1000, 0)
	idle := sandbox.Requested{Schedule: sandbox.Schedule{Idle: time.Second}}
	late := sandbox.Requested{Schedule: sandbox.Schedule{Idle: time.Second, RunBy: now}}
	ends := sandbox.Requested{Schedule: sandbox.Schedule{Idle: time.Second, HardEnd: now}}
	states := []sandbox.State{
		{ID: "idle", Phase: sandbox.PhaseRunning, Deadline: now, Request: idle},
		{ID: "late", Phase: sandbox.PhaseQueued, Request: late},
		{ID: "ends", Phase: sandbox.PhaseRunning, Deadline: now, Request: ends},
		{ID: "other", Phase: sandbox.PhaseRunning, Deadline: now},
	}
	for grace, want := range map[bool][]sandbox.ID{true: {"late", "ends", "other"}, false: {"idle", "late", "ends", "other"}} {
		a := agenda{now: now, grace: grace}
		for i := range states {
			a.visit(&states[i])
			if n := len(a.events(&states[i], now)); (n > 0) != slices.Contains(want, states[i].ID) {
				t.Errorf("grace %v: %d events for %s", grace, n, states[i].ID)
			}
		}
		if !slices.Equal(a.due, want) {
			t.Errorf("grace %v: due %v, want %v", grace, a.due, want)
		}
	}
}

func TestOrphaned(t *testing.T) {
	dead := map[string]fleet.Host{"h": {Lease: fleet.Lease{Host: "h", Epoch: 3}}}
	tests := []struct {
		name string
		s    sandbox.State
		want bool
	}{
		{"runs on the dead host", sandbox.State{Host: "h", Epoch: 3, Phase: sandbox.PhaseRunning}, true},
		{"was placed in an earlier epoch of it", sandbox.State{Host: "h", Epoch: 1, Phase: sandbox.PhasePlaced}, true},
		{"stops on the dead host", sandbox.State{Host: "h", Epoch: 3, Phase: sandbox.PhaseStopping}, true},
		{"belongs to its next epoch", sandbox.State{Host: "h", Epoch: 4, Phase: sandbox.PhaseRunning}, false},
		{"has ended", sandbox.State{Host: "h", Epoch: 3, Phase: sandbox.PhaseFailed}, false},
		{"runs elsewhere", sandbox.State{Host: "g", Epoch: 3, Phase: sandbox.PhaseRunning}, false},
		{"is not placed", sandbox.State{Phase: sandbox.PhaseRequested}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := orphaned(&tt.s, dead); got != tt.want {
				t.Errorf("orphaned = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSuspect(t *testing.T) {
	newest := time.Unix(10_000, 0)
	ended := func(s int64) process.Summary { return process.Summary{Ended: time.Unix(s, 0), Exit: &process.Exit{}} }
	tests := []struct {
		name string
		s    process.Summary
		want bool
	}{
		{"runs", process.Summary{}, true},
		{"the newest", ended(10_000), true},
		{"near it", ended(9_900), true},
		{"old", ended(9_000), false},
		{"ended by a reaper", process.Summary{Ended: newest, Exit: &process.Exit{Cause: process.CauseHostLost}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := suspect(&tt.s, newest); got != tt.want {
				t.Errorf("suspect = %v, want %v", got, tt.want)
			}
		})
	}
}
