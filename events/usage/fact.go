package usage

import (
	"time"
)

// Kinds of facts.
const (
	Sandbox      = "sandbox"
	Conversation = "conversation"
)

// Counters count what was used.
type Counters struct {
	CPU          time.Duration
	Sandboxes    int64 // started
	Sessions     int64 // conversations started
	InputTokens  int64
	OutputTokens int64
	ToolCalls    int64
}

// Add returns the sum of two counters.
func (c Counters) Add(d Counters) Counters {
	return Counters{
		c.CPU + d.CPU, c.Sandboxes + d.Sandboxes, c.Sessions + d.Sessions,
		c.InputTokens + d.InputTokens, c.OutputTokens + d.OutputTokens, c.ToolCalls + d.ToolCalls,
	}
}

// Daily is what was used on one day.
type Daily struct {
	Day Day
	Counters
}

// Fact is what one sandbox or conversation used. It is a value: its methods return a new one. Its
// days must not be changed.
type Fact struct {
	Tenant    string
	ID        string
	Kind      string // Sandbox or Conversation
	Started   time.Time
	Ended     time.Time     // zero until it has ended
	LastKnown bool          // the end was not observed by its host
	Measured  time.Time     // of the last measurement; zero: there was none
	Counter   time.Duration // CPU time since the sandbox was created, as measured last
	Days      []Daily       // oldest first
	Counted   Position      // of a conversation: what is in Days

	Rev uint64 // stream sequence of its message; 0: it is not stored
}

// Position is a place in the records of a conversation's runtimes.
type Position struct {
	Generation uint32 // of the sandbox; 0: nothing was read
	After      uint64 // seq of the event before the one with the last byte that was read
	Offset     uint64 // in the output of the runtime, at the end of a message
}

// New returns the fact of a sandbox or a conversation that has used nothing.
func New(tenant, id, what string, started time.Time) Fact {
	f := Fact{Tenant: tenant, ID: id, Kind: what, Started: started}
	one := Counters{Sandboxes: 1}
	if what == Conversation {
		one = Counters{Sessions: 1}
	}
	f.Days = []Daily{{DayOf(started), one}}
	return f
}

// Over reports whether the fact has ended. It does not change any more, unless it is that of a
// conversation and a resume reopens it.
func (f *Fact) Over() bool { return !f.Ended.IsZero() }

// Used returns the fact after further usage at a time.
func (f Fact) Used(at time.Time, c Counters) Fact {
	if c == (Counters{}) {
		return f
	}
	day := max(DayOf(at), f.Days[len(f.Days)-1].Day) // a clock that was set back does not reopen a day
	days := append([]Daily(nil), f.Days...)
	if last := &days[len(days)-1]; last.Day == day {
		last.Counters = last.Counters.Add(c)
	} else {
		days = append(days, Daily{day, c})
	}
	f.Days = days
	return f
}

// Measure returns the fact after a measurement of the sandbox's CPU time since it was created. A
// value below half of the last one is that of a counter that began again, with a new instance;
// without control groups, a counter may also fall a little as processes end. Zero counts as no
// measurement: a sandbox whose last process has just ended may read as zero.
func (f Fact) Measure(at time.Time, cpu time.Duration) Fact {
	if cpu == 0 {
		return f
	}
	grown := cpu - f.Counter
	switch {
	case cpu < f.Counter/2:
		grown = cpu
	case grown < 0:
		grown, cpu = 0, f.Counter
	}
	f = f.Used(at, Counters{CPU: grown})
	f.Measured, f.Counter = at, cpu
	return f
}

// End returns the fact after its end. lastKnown: the usage since the last measurement is unknown.
func (f Fact) End(at time.Time, lastKnown bool) Fact {
	f.Ended, f.LastKnown = at, lastKnown
	return f
}

// Count returns the fact of a conversation after usage that is in the records up to a position.
func (f Fact) Count(to Position, at time.Time, c Counters) Fact {
	f = f.Used(at, c).Reopen()
	f.Counted = to
	return f
}

// Reopen returns the fact of a conversation that was resumed after its end.
func (f Fact) Reopen() Fact { return f.End(time.Time{}, false) }

// CPU returns the CPU time of all days.
func (f *Fact) CPU() (sum time.Duration) {
	for i := range f.Days {
		sum += f.Days[i].CPU
	}
	return sum
}

// LastDay returns the last day on which it used anything.
func (f *Fact) LastDay() Day { return f.Days[len(f.Days)-1].Day }

const (
	minGrown    = time.Second // of CPU time
	grownPart   = 32
	maxUnstored = time.Minute
)

// Due reports whether a fact should be stored now that its CPU time has grown since the stored
// one: as soon as it grew by a second and by a 32nd, and after a minute at the latest. So the log
// has it soon, and a busy sandbox does not write at every measurement.
func (f *Fact) Due(stored *Fact) bool {
	grown := f.CPU() - stored.CPU()
	switch {
	case stored.Rev == 0:
		return true
	case grown == 0:
		return false
	}
	return grown >= minGrown+stored.CPU()/grownPart || f.Measured.Sub(stored.Measured) >= maxUnstored
}
