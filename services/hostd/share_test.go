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

// Who computes lets others go first, until he uses less while CPUs rest, or does what he is
// asked for and no more.
func TestWhoComputesLetsOthersGoFirst(t *testing.T) {
	c := newComputing(1)
	if told := c.places[0].yields; len(told) > 0 {
		t.Errorf("told %v before anything was known", told)
	}
	const many = 100 // of 20 ms each, where he uses a whole CPU, and 50, where he uses two and a half
	for i, tt := range []struct {
		percent int // of a CPU
		asks    uint64
		told    []bool
	}{
		{10, 0, []bool{false}}, // an earlier life may have told something else
		{69, 0, nil},
		{70, 0, []bool{true}},
		{200, 0, []bool{true}}, // somebody may have ended it
		{50, 0, []bool{true}},  // others take his CPU again and again
		{49, 0, []bool{false}}, // though there was more
		{69, 0, nil},           // he wants no more
		{97, many, nil},        // he does what he is asked for
		{250, many, nil},
		{96, 33, []bool{true}}, // more than fifty milliseconds for each
		{85, 33, []bool{true}},
		{85, many, []bool{false}},
		{0, 0, nil},
		{0, many, nil},
	} {
		c.boxes[0].asks.Add(tt.asks)
		if told := c.look(span, 100, tt.percent); !slices.Equal(told[0], tt.told) {
			t.Errorf("%d, at %d %% for %d: told %v, want %v", i, tt.percent, tt.asks, told[0], tt.told)
		}
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

// Who serves does not yield where nothing is left: the one beside him does, also if he uses
// less.
func TestWhoServesDoesNotYield(t *testing.T) {
	c := newComputing(2)
	for i, want := range []bool{false, false, true, true} {
		c.boxes[0].asks.Add(4) // of some 28 ms each
		c.look(shareEvery, max(0, 50-50*i), 110, 80)
		if serves, other := c.boxes[0].burner.yields, c.boxes[1].burner.yields; serves || other != want {
			t.Errorf("%d: %v, %v yield, want false, %v", i, serves, other, want)
		}
	}
}

// Who yields gets less than he wants, so that a few things that he is asked for would explain
// it: they must explain what made him yield.
func TestWhoIsAskedForLittleGoesOnYielding(t *testing.T) {
	c := newComputing(1)
	c.look(span, 100, 100)
	for _, tt := range []struct {
		asks uint64
		want bool
	}{{4, true}, {39, true}, {40, false}} {
		c.boxes[0].asks.Add(tt.asks)
		if told := c.look(span, 0, 10); !slices.Equal(told[0], []bool{tt.want}) {
			t.Errorf("asked %d times: told %v, want %v", tt.asks, told[0], tt.want)
		}
	}
}

// Whose span has just ended is who he was.
func TestWhoSpinsYieldsAlsoAtTheEndOfASpan(t *testing.T) {
	c := newComputing(2)
	c.look(time.Second, 50, 110, 80)
	c.boxes[1].burner.begin(c.boxes[1].burner.last)
	for i := range 10 {
		c.look(shareEvery, max(0, 50-50*max(0, i-7)), 110, 80)
		if c.boxes[1].burner.yields {
			t.Fatalf("%d: the one who uses less yields", i)
		}
	}
	if !c.boxes[0].burner.yields {
		t.Error("the one who uses most does not yield")
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
