package hostd

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// computes is a place that uses CPU time.
type computes struct {
	driver.Instance
	used   time.Duration
	err    error // of Yield
	yields []bool
}

func (c *computes) Burned() (time.Duration, error) { return c.used, nil }

func (c *computes) Yield(yes bool) error {
	c.yields = append(c.yields, yes)
	return c.err
}

// computing is a host of some places that compute.
type computing struct {
	places []*computes
	boxes  []*box
	now    use
	turn   turn
}

func newComputing(n int) *computing {
	c := &computing{now: use{at: time.Unix(1000, 0)}}
	for range n {
		p := &computes{used: time.Hour}
		c.places, c.boxes = append(c.places, p), append(c.boxes, &box{inst: p})
	}
	c.turn.take(c.boxes, c.now)
	return c
}

// look is the next one, after a while in which percents of a CPU were used and rested. It
// gives what each place was told.
func (c *computing) look(after time.Duration, rested int, used ...int) (told [][]bool) {
	c.now.at, c.now.idle = c.now.at.Add(after), c.now.idle+after*time.Duration(rested)/100
	for i, p := range c.places {
		p.used += after * time.Duration(used[i]) / 100
	}
	c.turn.take(c.boxes, c.now)
	for _, p := range c.places {
		told, p.yields = append(told, p.yields), nil
	}
	return told
}

// Who uses a whole CPU lets others go first, until he uses less while CPUs rest, whether he
// wants no more or gets no more.
func TestWhoComputesLetsOthersGoFirst(t *testing.T) {
	c := newComputing(1)
	if told := c.places[0].yields; len(told) > 0 {
		t.Errorf("told %v before anything was known", told)
	}
	for i, tt := range []struct {
		percent int // of a CPU
		told    []bool
	}{
		{10, []bool{false}}, // an earlier life may have told something else
		{96, nil},
		{100, []bool{true}},
		{200, []bool{true}}, // somebody may have ended it
		{91, []bool{true}},
		{89, []bool{false}}, // though there was more
		{96, nil},           // he wants no more
		{100, []bool{true}}, // so long after it is no equal any more
		{19, []bool{false}},
		{97, []bool{true}},
		{0, []bool{false}},
	} {
		if told := c.look(span, 100, tt.percent); !slices.Equal(told[0], tt.told) {
			t.Errorf("%d, at %d %%: told %v, want %v", i, tt.percent, told[0], tt.told)
		}
	}
}

// Who yields and gets less than he wants, though CPUs rest, is tried as an equal ever more
// rarely, as long as he takes a whole CPU each time.
func TestWhoComputesIsTriedEverMoreRarely(t *testing.T) {
	c := newComputing(1)
	u := &c.boxes[0].burner
	var yielded []int // spans between two trials
	for spans := 0; len(yielded) < 7; {
		percent := 99
		if u.yields {
			percent = 86
		}
		if c.look(span, 80, percent); u.yields {
			spans++
		} else if spans > 0 {
			yielded, spans = append(yielded, spans), 0
		}
	}
	if want := []int{1, 2, 4, 8, 16, 16, 16}; !slices.Equal(yielded, want) {
		t.Errorf("yielded for %v spans, want %v", yielded, want)
	}
	c.look(span, 80, 99)
	if c.look(span, 80, 49); u.yields {
		t.Error("he yields though he takes half a CPU where another one rests")
	}
	c.look(span, 80, 86)
	c.look(span, 80, 99)
	if c.look(span, 80, 86); u.yields {
		t.Error("he insists though he had wanted less meanwhile")
	}
}

// Where nothing is left of the CPUs one at a time yields, who uses most; who uses less than
// a CPU and has what he wants then does not.
func TestWhoLeavesNothingYields(t *testing.T) {
	c := newComputing(3)
	yields := func() (all []bool) {
		for _, b := range c.boxes {
			all = append(all, b.burner.yields)
		}
		return all
	}
	for i, tt := range []struct {
		rested int
		used   [3]int
		want   []bool
	}{
		{100, [3]int{85, 10, 5}, []bool{false, false, false}},
		{0, [3]int{75, 115, 5}, []bool{false, false, false}}, // a moment
		{29, [3]int{75, 115, 5}, []bool{false, true, false}},
		{0, [3]int{95, 80, 5}, []bool{false, true, false}}, // who yields leaves it to others,
		{0, [3]int{99, 9, 75}, []bool{false, true, false}}, // who may be those who leave nothing,
		{0, [3]int{99, 9, 75}, []bool{false, true, false}},
		{0, [3]int{99, 9, 75}, []bool{false, false, false}},   // and he would starve:
		{0, [3]int{69, 190, 10}, []bool{false, false, false}}, // he is an equal for a while
		{0, [3]int{69, 190, 10}, []bool{false, false, false}},
		{0, [3]int{90, 80, 10}, []bool{true, false, false}}, // in which another one may have to
	} {
		c.look(shareEvery, tt.rested, tt.used[:]...)
		if got := yields(); !slices.Equal(got, tt.want) {
			t.Errorf("%d, with %v: %v yield, want %v", i, tt.used, got, tt.want)
		}
	}
}

// Where nothing is left for a moment and no other place wants any, who uses less than a CPU
// does not yield: he would be the equal of a spinner that comes then.
func TestWhoLeavesNothingToNobodyDoesNotYield(t *testing.T) {
	c := newComputing(2)
	for i, tt := range []struct {
		used [2]int
		want bool
	}{
		{[2]int{85, 5}, false},
		{[2]int{85, 5}, false},
		{[2]int{85, 5}, false},
		{[2]int{85, 15}, true},
	} {
		c.look(shareEvery, 10, tt.used[:]...)
		if got := c.boxes[0].burner.yields; got != tt.want {
			t.Errorf("%d, with %v: yields is %v, want %v", i, tt.used, got, tt.want)
		}
	}
}

// What stood still meanwhile is told at once again, and nothing follows from what it used
// before.
func TestWhoYieldedDoesAfterAPause(t *testing.T) {
	c := newComputing(1)
	c.look(span, 100, 100)
	c.boxes[0].told = sandbox.PhasePaused
	if told := c.look(span, 200, 0); len(told[0]) > 0 {
		t.Errorf("told %v while it stands still", told)
	}
	c.boxes[0].told = sandbox.PhaseRunning
	if told := c.look(shareEvery, 200, 0); !slices.Equal(told[0], []bool{true}) {
		t.Errorf("told %v after it", told)
	}
}

func TestWhoCannotYieldIsNotAskedAgain(t *testing.T) {
	c := newComputing(1)
	c.places[0].err = kind.New(kind.Unimplemented, "yield", "", "no")
	asked := 0
	for range 5 {
		asked += len(c.look(span, 100, 100)[0])
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
