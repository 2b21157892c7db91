package accounts

import (
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

func TestLoads(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(1_000_000+int64(second), 0) }
	all := []sandbox.State{
		{Phase: sandbox.PhaseDestroyed, Started: at(-5), Ended: at(12)},
		{Phase: sandbox.PhaseRunning, Started: at(3)},
		{Phase: sandbox.PhaseLost, Started: at(4), Ended: at(5)},
		{Phase: sandbox.PhasePaused, Started: at(11), InPauses: sandbox.InPauses{PausedSince: at(25)}},
		{Phase: sandbox.PhaseDestroyed, Started: at(-9), Ended: at(-8)},
		{Phase: sandbox.PhaseDestroyed, Started: at(-9), InPauses: sandbox.InPauses{Pauses: []sandbox.Pause{{From: at(-8), To: at(22)}, {From: at(23), To: at(31)}}, PausedSince: at(32)}, Ended: at(50)},
		{Phase: sandbox.PhaseRunning, Started: at(40)},
	}
	want := []Load{{at(0), 3, 0.2}, {at(10), 3, 0.1}, {at(20), 3, 0}, {at(30), 2, 0}}
	if got := loads(all, at(0), at(40), 10*time.Second); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := loads(nil, at(0), at(1), time.Second); len(got) != 1 || got[0] != (Load{Begin: at(0)}) {
		t.Errorf("no sandboxes: %+v", got)
	}
	if got := loads(all, at(1), at(1), time.Second); len(got) != 0 {
		t.Errorf("empty interval: %+v", got)
	}
}
