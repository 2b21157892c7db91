package due_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/due"
	"github.com/millrace/millrace/events/sandbox"
)

var now = time.Unix(1000, 0)

func at(s int64) time.Time { return time.Unix(s, 0) }

// describe returns what happens, in short.
func describe(actions []due.Action) (out []string) {
	for _, a := range actions {
		switch b := a.Event.(type) {
		case sandbox.Stopping:
			out = append(out, fmt.Sprintf("%d stop %s", a.Cause, b.Cause))
		case sandbox.Pausing:
			out = append(out, fmt.Sprintf("%d pause %s files=%v", a.Cause, b.Cause, b.Files))
		case sandbox.Warned:
			out = append(out, fmt.Sprintf("%d warn %d", a.Cause, b.HardEnd.Unix()))
		case nil:
			out = append(out, fmt.Sprintf("%d end %s blocked=%v", a.Cause, a.Session.ID, a.Blocked))
		}
	}
	return out
}

func TestSandboxes(t *testing.T) {
	const (
		running = sandbox.PhaseRunning
		paused  = sandbox.PhasePaused
	)
	hard := func(end int64, warning time.Duration) sandbox.Requested {
		return sandbox.Requested{Schedule: sandbox.Schedule{HardEnd: at(end), Warning: warning}}
	}
	onTimeout := func(action string) sandbox.Requested { return sandbox.Requested{OnTimeout: action} }
	canPause := sandbox.Abilities{Pause: true}
	for _, tt := range []struct {
		name string
		s    sandbox.State
		want []string
		next int64 // 0: none
	}{
		{"without a deadline nothing is due", sandbox.State{Phase: running}, nil, 0},
		{"a deadline is due when it is reached", sandbox.State{Phase: running, Deadline: now}, []string{"3 stop timeout"}, 0},
		{"a deadline ahead is not due", sandbox.State{Phase: running, Deadline: at(1001)}, nil, 1001},
		{"a pause was requested", sandbox.State{Phase: running, Deadline: at(999), Can: canPause, Request: onTimeout(sandbox.OnTimeoutPause)}, []string{"3 pause timeout files=false"}, 0},
		{"a pause of the files was requested", sandbox.State{Phase: running, Deadline: at(999), Can: canPause, Request: onTimeout(sandbox.OnTimeoutPauseFiles)}, []string{"3 pause timeout files=true"}, 0},
		{"a pause is not possible", sandbox.State{Phase: running, Deadline: at(999), Request: onTimeout(sandbox.OnTimeoutPause)}, []string{"3 stop timeout"}, 0},
		{"it did not start in time", sandbox.State{Phase: sandbox.PhaseQueued, Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(999)}}}, []string{"3 stop late"}, 0},
		{"it may still start", sandbox.State{Phase: sandbox.PhasePlaced, Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(1007)}}}, nil, 1007},
		{"its deadline passed before it started", sandbox.State{Phase: sandbox.PhaseRequested, Deadline: at(999), Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(1007)}}}, []string{"3 stop timeout"}, 0},
		{"a running sandbox is not late", sandbox.State{Phase: running, Request: sandbox.Requested{Schedule: sandbox.Schedule{RunBy: at(1)}}}, nil, 0},
		{"a paused sandbox has no deadline", sandbox.State{Phase: paused, Deadline: at(1), InPauses: sandbox.InPauses{PausedSince: now}}, nil, now.Add(due.MaxPaused).Unix()},
		{"it was paused for four weeks", sandbox.State{Phase: paused, InPauses: sandbox.InPauses{PausedSince: now.Add(-due.MaxPaused)}}, []string{"3 stop timeout"}, 0},
		{"a sandbox that changes has no deadline", sandbox.State{Phase: sandbox.PhaseResuming, Deadline: at(1)}, nil, 0},

		{"the hard end comes before a pause", sandbox.State{Phase: running, Deadline: now, Can: canPause, Request: sandbox.Requested{Schedule: sandbox.Schedule{HardEnd: now}, OnTimeout: sandbox.OnTimeoutPause}}, []string{"1 stop max_lifetime"}, 0},
		{"the hard end counts while it is paused", sandbox.State{Phase: paused, InPauses: sandbox.InPauses{PausedSince: now}, Request: hard(999, 0)}, []string{"1 stop max_lifetime"}, 0},
		{"the hard end of a paused sandbox is ahead", sandbox.State{Phase: paused, InPauses: sandbox.InPauses{PausedSince: now}, Request: hard(1001, 0)}, nil, 1001},
		{"the hard end counts while it is being paused", sandbox.State{Phase: sandbox.PhasePausing, Request: hard(1000, 0)}, []string{"1 stop max_lifetime"}, 0},
		{"the hard end counts while it is being resumed", sandbox.State{Phase: sandbox.PhaseResuming, Request: hard(1000, 0)}, []string{"1 stop max_lifetime"}, 0},
		{"the hard end counts before it runs", sandbox.State{Phase: sandbox.PhaseQueued, Request: hard(1000, 0)}, []string{"1 stop max_lifetime"}, 0},
		{"a sandbox that is being ended is not due", sandbox.State{Phase: sandbox.PhaseStopping, Request: hard(1, 0), Deadline: at(1)}, nil, 0},
		{"an ended sandbox is not due", sandbox.State{Phase: sandbox.PhaseLost, Request: hard(1, 0), Deadline: at(1)}, nil, 0},

		{"the warning is ahead", sandbox.State{Phase: running, Request: hard(1100, time.Minute)}, nil, 1040},
		{"the warning is due", sandbox.State{Phase: running, Request: hard(1100, 100*time.Second)}, []string{"2 warn 1100"}, 1100},
		{"a warning comes once", sandbox.State{Phase: running, Warned: true, Request: hard(1100, 100*time.Second)}, nil, 1100},
		{"a paused sandbox is warned when it runs again", sandbox.State{Phase: paused, InPauses: sandbox.InPauses{PausedSince: now}, Request: hard(1100, 100*time.Second)}, nil, 1100},
		{"the end makes a warning pointless", sandbox.State{Phase: running, Request: hard(1000, 100*time.Second)}, []string{"1 stop max_lifetime"}, 0},
		{"a warning comes before the deadline", sandbox.State{Phase: running, Deadline: now, Request: hard(1100, 100*time.Second)}, []string{"2 warn 1100", "3 stop timeout"}, 1100},
	} {
		got, next := due.Of(&tt.s, nil, now)
		if s := describe(got); !slices.Equal(s, tt.want) || !next.IsZero() != (tt.next != 0) || tt.next != 0 && next.Unix() != tt.next {
			t.Errorf("%s: %q, next %v; want %q, %v", tt.name, s, next, tt.want, tt.next)
		}
	}
}

func TestSessions(t *testing.T) {
	gone := attachment.Holder{Gone: true, Since: at(905)}
	const (
		attached = attachment.Attached
		detached = attachment.Detached
		ending   = attachment.Ending
	)
	for _, tt := range []struct {
		name   string
		box    sandbox.Phase
		phase  attachment.Phase
		policy attachment.Policy
		holder attachment.Holder
		owned  bool
		want   string // empty: nothing
		next   int64
	}{
		{name: "has a client", phase: attached},
		{name: "its gateway is gone", phase: attached, holder: gone, want: "4 end S blocked=false"},
		{name: "its gateway is gone, and it may wait", phase: attached, policy: attachment.Policy{TTL: 100 * time.Second}, holder: gone, next: 1005},
		{name: "its gateway was gone before", phase: attached, policy: attachment.Policy{TTL: 99 * time.Second}, holder: attachment.Holder{Gone: true, Since: at(1)}, want: "4 end S blocked=false"},
		{name: "its gateway is gone, and it ends at once", phase: attached, policy: attachment.Policy{Terminate: true}, holder: gone, want: "4 end S blocked=false"},
		{name: "waits for its client", phase: detached, policy: attachment.Policy{TTL: 101 * time.Second}, next: 1001},
		{name: "has waited for the default time", phase: detached, want: "4 end S blocked=false"},
		{name: "has waited as long as it says", phase: detached, policy: attachment.Policy{TTL: 100 * time.Second}, holder: gone, want: "4 end S blocked=false"},
		{name: "waits without limit", phase: detached, policy: attachment.Policy{TTL: -1}, holder: gone},
		{name: "ends at once", phase: detached, policy: attachment.Policy{Terminate: true, TTL: -1}, want: "4 end S blocked=false"},
		{name: "the gateway that ends it may have died", phase: ending, policy: attachment.Policy{TTL: -1}, want: "4 end S blocked=false"},
		{name: "has ended", phase: attachment.Ended, holder: gone},
		{name: "its processes cannot be killed in a paused sandbox", box: sandbox.PhasePaused, phase: detached, want: "4 end S blocked=true"},
		{name: "waits until its sandbox runs", box: sandbox.PhasePaused, phase: ending},
		{name: "its own sandbox ends while it is paused", box: sandbox.PhasePaused, phase: detached, owned: true, want: "4 end S blocked=false"},
		{name: "the end of its own paused sandbox is repeated", box: sandbox.PhasePaused, phase: ending, owned: true, want: "4 end S blocked=false"},
		{name: "its sandbox has ended", box: sandbox.PhaseDestroyed, phase: detached, want: "4 end S blocked=false"},
	} {
		box := sandbox.State{Phase: sandbox.PhaseRunning}
		if tt.box != "" {
			box.Phase = tt.box
		}
		pausedFor := int64(0)
		if box.Phase == sandbox.PhasePaused {
			box.PausedSince = now
			pausedFor = now.Add(due.MaxPaused).Unix()
		}
		x := due.Session{Session: attachment.Session{ID: "S", Phase: tt.phase, Policy: tt.policy, Owned: tt.owned, Since: at(900)}, Holder: tt.holder}
		got, next := due.Of(&box, []due.Session{x}, now)
		var want []string
		if tt.want != "" {
			want = []string{tt.want}
		}
		wantNext := max(tt.next, pausedFor)
		if s := describe(got); !slices.Equal(s, want) || !next.IsZero() != (wantNext != 0) || wantNext != 0 && next.Unix() != wantNext {
			t.Errorf("%s: %q, next %v; want %q, %v", tt.name, s, next, want, wantNext)
		}
	}
}

// a session without a client ends 80 s later, unless it says otherwise, and not before.
func TestSessionsWaitEightySeconds(t *testing.T) {
	box := sandbox.State{Phase: sandbox.PhaseRunning}
	const left = 900 // when the client left
	x := due.Session{Session: attachment.Session{ID: "S", Phase: attachment.Detached, Since: at(left)}}
	if got, next := due.Of(&box, []due.Session{x}, at(left+79)); len(got) > 0 || !next.Equal(at(left+80)) {
		t.Errorf("after 79 s: %q, next %v", describe(got), next)
	}
	if got, _ := due.Of(&box, []due.Session{x}, at(left+80)); !slices.Equal(describe(got), []string{"4 end S blocked=false"}) {
		t.Errorf("after 80 s: %q", describe(got))
	}
}

// E-248: the hard end of a sandbox comes before everything in it.
func TestPrecedence(t *testing.T) {
	box := sandbox.State{Phase: sandbox.PhaseRunning, Deadline: now, Request: sandbox.Requested{Schedule: sandbox.Schedule{HardEnd: now, Warning: time.Hour}}}
	x := due.Session{Session: attachment.Session{ID: "S", Phase: attachment.Detached}}
	got, _ := due.Of(&box, []due.Session{x}, now)
	if want := []string{"1 stop max_lifetime", "4 end S blocked=false"}; !slices.Equal(describe(got), want) {
		t.Errorf("%q, want %q", describe(got), want)
	}
}
