package cpushare

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// busyInstance is an instance that uses CPU time.
type busyInstance struct {
	driver.Instance
	used      time.Duration
	err       error // result of SetDeprioritized
	calls     []bool
	suspended bool
}

func (c *busyInstance) CPUTime() (time.Duration, error) { return c.used, nil }

func (c *busyInstance) SetDeprioritized(yes bool) error {
	c.calls = append(c.calls, yes)
	return c.err
}

// busyHost is a host with some instances that compute.
type busyHost struct {
	instances []*busyInstance
	members   []*Member
	now       sample
	balancer  balancer
}

func newBusyHost(n int) *busyHost {
	c := &busyHost{now: sample{at: time.Unix(1000, 0)}}
	for range n {
		p := &busyInstance{used: time.Hour}
		c.instances, c.members = append(c.instances, p), append(c.members, &Member{
			Instance:  func() driver.Instance { return p },
			Suspended: func() bool { return p.suspended },
		})
	}
	c.balancer.apply(c.members, c.now)
	return c
}

// sample is the next sample, after a while in which the given percentages of a CPU were used and
// idle. It returns the calls of SetDeprioritized per instance.
func (c *busyHost) sample(after time.Duration, rested int, used ...int) (calls [][]bool) {
	c.now.at, c.now.idle = c.now.at.Add(after), c.now.idle+after*time.Duration(rested)/100
	for i, p := range c.instances {
		p.used += after * time.Duration(used[i]) / 100
	}
	c.balancer.apply(c.members, c.now)
	for _, p := range c.instances {
		calls, p.calls = append(calls, p.calls), nil
	}
	return calls
}

// A sandbox that computes is deprioritized until it uses less while CPUs are idle, or uses no
// more than its requests explain.
func TestBusySandboxIsDeprioritized(t *testing.T) {
	c := newBusyHost(1)
	if calls := c.instances[0].calls; len(calls) > 0 {
		t.Errorf("SetDeprioritized called with %v before the first span", calls)
	}
	const many = 100 // of 20 ms each if it uses a whole CPU, and 50 ms if it uses two and a half
	for i, tt := range []struct {
		percent int // of a CPU
		asks    uint64
		calls   []bool
	}{
		{10, 0, []bool{false}}, // a previous run may have set another value
		{69, 0, nil},
		{70, 0, []bool{true}},
		{200, 0, []bool{true}}, // a pause may have reset it
		{50, 0, []bool{true}},  // others preempt it again and again
		{49, 0, []bool{false}}, // although more was available
		{69, 0, nil},           // its demand is met
		{97, many, nil},        // its requests explain it
		{250, many, nil},
		{96, 33, []bool{true}}, // more than fifty milliseconds per request
		{85, 33, []bool{true}},
		{85, many, []bool{false}},
		{0, 0, nil},
		{0, many, nil},
	} {
		c.members[0].Requests.Add(tt.asks)
		if calls := c.sample(monitorSpan, 100, tt.percent); !slices.Equal(calls[0], tt.calls) {
			t.Errorf("%d: at %d %% with %d requests: SetDeprioritized called with %v, want %v", i, tt.percent, tt.asks, calls[0], tt.calls)
		}
	}
}

// On saturated CPUs one sandbox at a time is deprioritized, the one that uses the most; not one
// that uses less than a CPU and has its demand met.
func TestTopConsumerOfSaturatedCPUsIsDeprioritized(t *testing.T) {
	c := newBusyHost(3)
	deprioritized := func() (all []bool) {
		for _, sb := range c.members {
			all = append(all, sb.monitor.deprioritized)
		}
		return all
	}
	for i, tt := range []struct {
		rested int
		used   [3]int
		want   []bool
	}{
		{100, [3]int{85, 10, 5}, []bool{false, false, false}},
		{0, [3]int{75, 115, 5}, []bool{false, false, false}}, // only for a moment
		{29, [3]int{75, 115, 5}, []bool{false, true, false}},
		{0, [3]int{95, 80, 5}, []bool{false, true, false}}, // it leaves the CPU to others,
		{0, [3]int{99, 9, 75}, []bool{false, true, false}}, // which may saturate the CPUs themselves,
		{0, [3]int{99, 9, 75}, []bool{false, true, false}},
		{0, [3]int{99, 9, 75}, []bool{false, false, false}},   // and it would starve:
		{0, [3]int{69, 190, 10}, []bool{false, false, false}}, // it is restored for a while
		{0, [3]int{69, 190, 10}, []bool{false, false, false}},
		{0, [3]int{90, 80, 10}, []bool{true, false, false}}, // in which another one may be deprioritized
	} {
		c.sample(shareEvery, tt.rested, tt.used[:]...)
		if got := deprioritized(); !slices.Equal(got, tt.want) {
			t.Errorf("%d: with %v: deprioritized %v, want %v", i, tt.used, got, tt.want)
		}
	}
}

// A sandbox that serves requests is not deprioritized on saturated CPUs: its neighbor is, even if
// it uses less.
func TestServingSandboxIsNotDeprioritized(t *testing.T) {
	c := newBusyHost(2)
	for i, want := range []bool{false, false, true, true} {
		c.members[0].Requests.Add(4) // of some 28 ms each
		c.sample(shareEvery, max(0, 50-50*i), 110, 80)
		if serves, other := c.members[0].monitor.deprioritized, c.members[1].monitor.deprioritized; serves || other != want {
			t.Errorf("%d: deprioritized %v, %v; want false, %v", i, serves, other, want)
		}
	}
}

// A deprioritized sandbox gets less than its demand, so that a few requests would explain it: they
// must explain the usage for which it was deprioritized.
func TestFewRequestsDoNotRestoreASandbox(t *testing.T) {
	c := newBusyHost(1)
	c.sample(monitorSpan, 100, 100)
	for _, tt := range []struct {
		asks uint64
		want bool
	}{{4, true}, {39, true}, {40, false}} {
		c.members[0].Requests.Add(tt.asks)
		if calls := c.sample(monitorSpan, 0, 10); !slices.Equal(calls[0], []bool{tt.want}) {
			t.Errorf("%d requests: SetDeprioritized called with %v, want %v", tt.asks, calls[0], tt.want)
		}
	}
}

// The end of a span does not change which sandbox is deprioritized.
func TestEndOfASpanDoesNotChangeTheChoice(t *testing.T) {
	c := newBusyHost(2)
	c.sample(time.Second, 50, 110, 80)
	c.members[1].monitor.beginSpan(c.members[1].monitor.last)
	for i := range 10 {
		c.sample(shareEvery, max(0, 50-50*max(0, i-7)), 110, 80)
		if c.members[1].monitor.deprioritized {
			t.Fatalf("%d: the one that uses less is deprioritized", i)
		}
	}
	if !c.members[0].monitor.deprioritized {
		t.Error("the one that uses the most is not deprioritized")
	}
}

// If the CPUs are saturated for a moment and no other sandbox has demand, one that uses less than
// a CPU is not deprioritized: it would be equal to a busy loop that starts then.
func TestMomentOfSaturationDoesNotDeprioritize(t *testing.T) {
	c := newBusyHost(2)
	for i, tt := range []struct {
		used [2]int
		want bool
	}{
		{[2]int{85, 5}, false},
		{[2]int{85, 5}, false},
		{[2]int{85, 5}, false},
		{[2]int{85, 15}, true},
	} {
		c.sample(shareEvery, 10, tt.used[:]...)
		if got := c.members[0].monitor.deprioritized; got != tt.want {
			t.Errorf("%d: with %v: deprioritized is %v, want %v", i, tt.used, got, tt.want)
		}
	}
}

// A deprioritized sandbox is set again at once after a pause, and its usage from before does not
// count.
func TestDeprioritizedSandboxStaysSoAfterAPause(t *testing.T) {
	c := newBusyHost(1)
	c.sample(monitorSpan, 100, 100)
	c.instances[0].suspended = true
	if calls := c.sample(monitorSpan, 200, 0); len(calls[0]) > 0 {
		t.Errorf("SetDeprioritized called with %v during the pause", calls)
	}
	c.instances[0].suspended = false
	if calls := c.sample(shareEvery, 200, 0); !slices.Equal(calls[0], []bool{true}) {
		t.Errorf("SetDeprioritized called with %v after the pause", calls)
	}
}

func TestFailedDeprioritizationIsNotRetried(t *testing.T) {
	c := newBusyHost(1)
	c.instances[0].err = kind.New(kind.Unimplemented, "deprioritize", "", "no")
	asked := 0
	for range 5 {
		asked += len(c.sample(monitorSpan, 100, 100)[0])
	}
	if asked != 1 {
		t.Errorf("SetDeprioritized called %d times, want 1", asked)
	}
}
