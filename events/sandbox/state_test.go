package sandbox

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// replay applies bodies in order, one second apart, and stops at the first that cannot
// follow.
func replay(bodies ...Body) (State, error) {
	var s State
	var err error
	for i, b := range bodies {
		if s, err = s.Apply(Event{Seq: uint64(i + 1), Time: time.Unix(int64(i+1), 0), Body: b}); err != nil {
			return s, err
		}
	}
	return s, nil
}

func TestPausesInARecord(t *testing.T) {
	run := []Body{Requested{OnTimeout: OnTimeoutKill}, Placed{Host: "h", Driver: "d"}, Running{Driver: "d", Isolation: IsolationProcess, Can: Abilities{Pause: true}}}
	tests := []struct {
		name string
		then []Body
		want Phase
		ok   bool
	}{
		{"paused", []Body{Pausing{Cause: CauseUser}, Paused{}}, PhasePaused, true},
		{"paused and resumed", []Body{Pausing{}, Paused{}, Resuming{}, DeadlineSet{}, Resumed{}}, PhaseRunning, true},
		{"a pause that failed", []Body{Pausing{}, Resumed{Message: "no"}}, PhaseRunning, true},
		{"a resume that failed", []Body{Pausing{}, Paused{}, Resuming{}, Paused{Message: "no"}}, PhasePaused, true},
		{"ended while paused", []Body{Pausing{}, Paused{}, Stopping{}, Destroyed{}}, PhaseDestroyed, true},
		{"lost while paused", []Body{Pausing{}, Paused{}, Lost{}}, PhaseLost, true},
		{"snapshots change nothing", []Body{Snapshotted{}, Pausing{}, Snapshotted{}, Paused{}, Snapshotted{}}, PhasePaused, true},
		{"paused without a request", []Body{Paused{}}, PhaseRunning, false},
		{"paused twice", []Body{Pausing{}, Paused{}, Pausing{}}, PhasePaused, false},
		{"resumed without a request", []Body{Resumed{}}, PhaseRunning, false},
		{"resumed after its end", []Body{Stopping{}, Destroyed{}, Resuming{}}, PhaseDestroyed, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := replay(append(run[:3:3], tt.then...)...)
			if s.Phase != tt.want || (err == nil) != tt.ok {
				t.Errorf("%q, %v; want %q, ok %v", s.Phase, err, tt.want, tt.ok)
			}
			if s.InPause() != (tt.want == PhasePaused) || (s.Phase == PhasePaused) == s.PausedSince.IsZero() && !s.Over() {
				t.Errorf("standing %v, paused since %v", s.InPause(), s.PausedSince)
			}
		})
	}
	s, err := replay(append(run, Pausing{}, Paused{}, Resuming{OnTimeout: OnTimeoutPause}, Resumed{})...)
	if err != nil || s.Request.OnTimeout != OnTimeoutPause || !s.Can.Pause || s.Isolation != IsolationProcess || !s.PausedSince.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
}

// A failed resume does not interrupt a pause.
func TestAFailedResumeDoesNotInterruptAPause(t *testing.T) {
	tried := []Body{Requested{}, Placed{}, Running{}, Pausing{}, Paused{}, Resuming{}, Paused{Message: "no"}}
	for _, tt := range []struct {
		name  string
		then  []Body
		still time.Time
		rests []Pause
	}{
		{"it is still paused", nil, time.Unix(5, 0), nil},
		{"it resumed later", []Body{Resuming{}, Resumed{}}, time.Time{}, []Pause{{time.Unix(5, 0), time.Unix(9, 0)}}},
		{"it was paused again", []Body{Resuming{}, Resumed{}, Pausing{}, Paused{}}, time.Unix(11, 0), []Pause{{time.Unix(5, 0), time.Unix(9, 0)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := replay(slices.Concat(tried, tt.then)...)
			if err != nil || s.PausedSince != tt.still || !slices.Equal(s.Pauses, tt.rests) {
				t.Errorf("paused since %v, rests %v, %v; want %v, %v", s.PausedSince, s.Pauses, err, tt.still, tt.rests)
			}
		})
	}
}

// A sandbox of which only the files were kept reboots, however it is resumed. One that
// could not be paused continues as before.
func TestReboot(t *testing.T) {
	run := []Body{Requested{AutoResume: true}, Placed{}, Running{Can: Abilities{Pause: true}}}
	for _, tt := range []struct {
		name           string
		then           []Body
		reboots, wakes bool
	}{
		{"a pause", []Body{Pausing{}, Paused{}}, false, true},
		{"resumed", []Body{Pausing{}, Paused{}, Resuming{}}, false, true},
		{"rebooted", []Body{Pausing{}, Paused{}, Resuming{Reboot: true}}, true, false},
		{"files alone", []Body{Pausing{Files: true}, Paused{}}, true, false},
		{"files alone, resumed", []Body{Pausing{Files: true}, Paused{}, Resuming{}}, true, false},
		{"files alone, but the pause failed", []Body{Pausing{Files: true}, Resumed{Message: "no"}}, false, true},
		{"the next pause", []Body{Pausing{Files: true}, Paused{}, Resuming{}, Resumed{}, Pausing{}, Paused{}}, false, true},
	} {
		s, err := replay(append(run[:3:3], tt.then...)...)
		if err != nil || s.Reboot != tt.reboots || s.AutoResumes() != tt.wakes {
			t.Errorf("%s: %v, reboots %v, wakes %v", tt.name, err, s.Reboot, s.AutoResumes())
		}
	}
}

// No event moves a deadline beyond the hard end.
func TestHardEndClamps(t *testing.T) {
	end := time.Unix(50, 0) // the events are a second apart
	run := []Body{Requested{Schedule: Schedule{Lifetime: time.Hour, HardEnd: end}}, Placed{}, Running{}}
	for _, tt := range []struct {
		name string
		then []Body
		want time.Time
	}{
		{"a lifetime", nil, end},
		{"a later deadline", []Body{DeadlineSet{Deadline: end.Add(1)}}, end},
		{"an earlier deadline", []Body{DeadlineSet{Deadline: end.Add(-1)}}, end.Add(-1)},
		{"a lifetime after a pause", []Body{DeadlineSet{Deadline: end.Add(-1)}, Pausing{}, Paused{}, Resuming{Lifetime: time.Hour}, Resumed{}}, end},
		{"a deadline while it is paused", []Body{Pausing{}, Paused{}, DeadlineSet{Deadline: end.Add(time.Hour)}}, end},
		{"a deadline while it is resumed", []Body{Pausing{}, Paused{}, Resuming{}, DeadlineSet{Deadline: end.Add(time.Hour)}, Resumed{}}, end},
		{"a warning", []Body{Warned{HardEnd: end.Add(time.Hour)}}, end},
	} {
		if s, err := replay(slices.Concat(run, tt.then)...); err != nil || !s.Deadline.Equal(tt.want) {
			t.Errorf("%s: %v, %v; want %v", tt.name, s.Deadline, err, tt.want)
		}
	}
}

// A sandbox that ends when it is idle has a first deadline, unless its lifetime sets one.
func TestIdleSetsTheFirstDeadline(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Schedule
		want time.Duration // after it runs
	}{
		{"no limit", Schedule{}, 0},
		{"idle", Schedule{Idle: time.Minute}, time.Minute},
		{"a lifetime", Schedule{Idle: time.Minute, Lifetime: time.Hour}, time.Hour},
	} {
		s, err := replay(Requested{Schedule: tt.s}, Placed{}, Running{})
		if tt.want == 0 && err == nil && s.Deadline.IsZero() {
			continue
		}
		if err != nil || !s.Deadline.Equal(s.Started.Add(tt.want)) {
			t.Errorf("%s: deadline %v after it ran at %v, %v; want %v", tt.name, s.Deadline, s.Started, err, tt.want)
		}
	}
}

// E-243, E-244: an idle timeout starts when the sandbox runs, and again after a pause, whatever the request to
// resume it says.
func TestAPauseDoesNotCountAsIdle(t *testing.T) {
	run := []Body{Requested{Schedule: Schedule{Idle: time.Minute, HardEnd: time.Unix(1000, 0)}}, Placed{}, Running{}}
	for _, lifetime := range []time.Duration{0, time.Second, time.Hour} {
		s, err := replay(append(run, DeadlineSet{Deadline: time.Unix(5, 0)}, Pausing{}, Paused{}, Resuming{Lifetime: lifetime}, Resumed{})...)
		if at := s.Pauses[0].To; err != nil || !s.Deadline.Equal(at.Add(time.Minute)) {
			t.Errorf("resumed for %v at %v: deadline %v, %v", lifetime, at, s.Deadline, err)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for i, has := range Isolations() {
		for j, want := range Isolations() {
			if got := has.AtLeast(want); got != (i >= j) {
				t.Errorf("%s at least %s: %v", has, want, got)
			}
		}
		if !has.AtLeast("") {
			t.Errorf("%s is not enough for no demand", has)
		}
	}
	for _, unknown := range []Isolation{"", "fortress"} {
		if unknown.AtLeast(IsolationProcess) || !unknown.AtLeast(IsolationNone) {
			t.Errorf("%q counts as more than none", unknown)
		}
	}
	if _, err := ParseIsolation("fortress"); err == nil {
		t.Error("an unknown level was accepted")
	}
}

func TestSnapshotIDs(t *testing.T) {
	id := NewSnapshotID()
	if got, err := ParseSnapshotID(string(id)); err != nil || got != id {
		t.Errorf("%q: %q, %v", id, got, err)
	}
	for _, bad := range []string{"", "s", "../../../etc/passwd00", string(NewID()), string(id) + "0", "s*.>0123456789012345a"} {
		if _, err := ParseSnapshotID(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A record has its last pauses, and copies of it do not share them.
func TestPastPausesAreLimitedAndNotShared(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	s := State{Phase: PhaseRunning}
	pause := func(s State, n int) State {
		for i, b := range []Body{Pausing{}, Paused{}, Resuming{}, Resumed{}} {
			var err error
			if s, err = s.Apply(Event{Body: b, Time: at(4*n + i)}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	for n := range maxPauses + 2 {
		s = pause(s, n)
	}
	if n := len(s.Pauses); n != maxPauses || s.Pauses[0] != (Pause{at(9), at(11)}) {
		t.Errorf("%d, first %v", n, s.Pauses[0])
	}
	one, two := pause(s, 1000), pause(s, 2000)
	if got := one.Pauses[maxPauses-1]; got != (Pause{at(4001), at(4003)}) || two.Pauses[maxPauses-1] == got {
		t.Errorf("got %v", got)
	}
}

// A request without a limit gets the driver's, if that has one.
func TestLimitsOfTheDriver(t *testing.T) {
	for _, asked := range []Requested{{}, {Resources: Resources{CPUMilli: 7, MemoryMiB: 8}}} {
		run := Running{Driver: "d", CPUMilli: 1000, MemoryMiB: 512}
		s, err := replay(asked, Placed{}, run)
		if err != nil {
			t.Fatal(err)
		}
		want := asked
		if asked.MemoryMiB == 0 {
			want.CPUMilli, want.MemoryMiB = run.CPUMilli, run.MemoryMiB
		}
		if got := s.Request; got.CPUMilli != want.CPUMilli || got.MemoryMiB != want.MemoryMiB {
			t.Errorf("asked for %d and %d, has %d and %d", asked.CPUMilli, asked.MemoryMiB, got.CPUMilli, got.MemoryMiB)
		}
	}
}

// The end of a sandbox waits for a gateway only while one stores the workspace of a sandbox that is not paused.
func TestAwaitsUnmount(t *testing.T) {
	run := []Body{Requested{}, Placed{Host: "h", Driver: "d"}, Running{Driver: "d", Can: Abilities{Pause: true}}}
	for _, tt := range []struct {
		name string
		then []Body
		want bool
	}{
		{"no workspace", []Body{Stopping{}}, false},
		{"mounted and running", []Body{Mounted{Gateway: "g"}}, false},
		{"mounted", []Body{Mounted{Gateway: "g"}, Stopping{}}, true},
		{"another gateway", []Body{Mounted{Gateway: "g"}, Mounted{Gateway: "g2"}, Stopping{}}, true},
		{"unmounted before", []Body{Mounted{Gateway: "g"}, Unmounted{}, Stopping{}}, false},
		{"unmounted", []Body{Mounted{Gateway: "g"}, Stopping{}, Unmounted{}}, false},
		{"paused", []Body{Mounted{Gateway: "g"}, Pausing{}, Paused{}, Stopping{}}, false},
		{"resumed", []Body{Mounted{Gateway: "g"}, Pausing{}, Paused{}, Resuming{}, Resumed{}, Stopping{}}, true},
		{"ended", []Body{Mounted{Gateway: "g"}, Stopping{}, Destroyed{}}, false},
	} {
		s, err := replay(append(run[:3:3], tt.then...)...)
		if err != nil || s.AwaitsUnmount() != tt.want {
			t.Errorf("%s: %v, %v", tt.name, s.AwaitsUnmount(), err)
		}
	}
	s, err := replay(append(run[:3:3], Mounted{Gateway: "g"}, Lost{}, Unmounted{Count: 1})...)
	if err != nil || s.Phase != PhaseLost || s.Ended != time.Unix(5, 0) {
		t.Errorf("%+v, %v: an event after the end changes its time", s, err)
	}
}

// E-250: whatever is appended in whatever order, a state changes only along the edges that clients are told of, and
// what has ended stays ended.
func TestOnlyLegalTransitions(t *testing.T) {
	bodies := []Body{
		Requested{}, Queued{}, Placed{}, Refused{}, Running{}, DeadlineSet{}, Pausing{}, Paused{}, Resuming{}, Resumed{}, Snapshotted{},
		NetworkSet{}, NetworkUsed{}, Warned{}, Mounted{}, Unmounted{}, Stopping{}, Destroyed{}, Lost{}, Failed{},
	}
	over := []Phase{PhaseDestroyed, PhaseLost, PhaseFailed, PhaseRefused}
	legal := map[Phase][]Phase{
		PhaseNone:      {PhaseRequested},
		PhaseRequested: {PhaseQueued, PhasePlaced},
		PhaseQueued:    {PhasePlaced},
		PhasePlaced:    {PhaseRunning, PhaseStopping},
		PhaseRunning:   {PhasePausing, PhaseStopping},
		PhasePausing:   {PhasePaused, PhaseRunning, PhaseStopping},
		PhasePaused:    {PhaseResuming, PhaseStopping},
		PhaseResuming:  {PhaseRunning, PhasePaused, PhaseStopping},
	}
	seen := make(map[Phase]bool)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var s State
		for range 60 {
			was := s.Phase
			b := bodies[r.IntN(len(bodies))]
			after, err := s.Apply(Event{Seq: s.Seq + 1, Time: time.Unix(int64(s.Seq+1), 0), Body: b})
			if err != nil {
				if after.Phase != was || after.Seq != s.Seq {
					t.Fatalf("a refused %T changed %q to %q", b, was, after.Phase)
				}
				continue
			}
			s = after
			seen[s.Phase] = true
			ends := slices.Contains(over, s.Phase) && was != PhaseNone && !slices.Contains(over, was)
			if s.Phase != was && !ends && !slices.Contains(legal[was], s.Phase) {
				t.Fatalf("%T led from %q to %q", b, was, s.Phase)
			}
			if s.Over() != slices.Contains(over, s.Phase) || s.Over() == s.Ended.IsZero() {
				t.Fatalf("in %q: over %v, ended %v", s.Phase, s.Over(), s.Ended)
			}
		}
	}
	if len(seen) != len(legal)+len(over) { // all but none, and stopping
		t.Errorf("%d phases were reached: %v", len(seen), seen)
	}
}
