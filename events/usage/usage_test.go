package usage_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/events/usage"
)

var noon = time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)

func TestDays(t *testing.T) {
	d := usage.DayOf(noon)
	first, last := d.Month()
	if d.String() != "2026-02-28" || first.String() != "2026-02-01" || last != d {
		t.Errorf("%v of %v..%v", d, first, last)
	}
	if got := usage.DayOf(time.Unix(-1, 0)); got != -1 || got.String() != "1969-12-31" {
		t.Errorf("the second before 1970 is on day %d, %v", got, got)
	}
	if got, err := usage.ParseDay("2026-02-28"); got != d || err != nil {
		t.Errorf("ParseDay = %v, %v", got, err)
	}
	for _, s := range []string{"", "2026-2-8", "2026-02-30", "2026-02-28T00:00:00Z", " 2026-02-28", "+2026-02-28", "12026-02-28"} {
		if d, err := usage.ParseDay(s); err == nil {
			t.Errorf("ParseDay(%q) = %v", s, d)
		}
	}
}

// A counter that began again counts from zero, one that fell a little does not count again, nor does one that reads as zero; a clock
// that was set back adds to the last day.
func TestMeasure(t *testing.T) {
	f := usage.New("t", "i1", usage.Sandbox, noon)
	for _, m := range []struct {
		after time.Duration
		cpu   time.Duration
	}{{time.Minute, 5 * time.Second}, {2 * time.Minute, 9 * time.Second}, {3 * time.Minute, 8 * time.Second}, {3 * time.Minute, 0}, {4 * time.Minute, 9 * time.Second}, {13 * time.Hour, 2 * time.Second}, {2 * time.Hour, 3 * time.Second}} {
		f = f.Measure(noon.Add(m.after), m.cpu)
	}
	want := []usage.Daily{
		{usage.DayOf(noon), usage.Counters{CPU: 9 * time.Second, Sandboxes: 1}},
		{usage.DayOf(noon) + 1, usage.Counters{CPU: 3 * time.Second}},
	}
	if !reflect.DeepEqual(f.Days, want) || f.CPU() != 12*time.Second {
		t.Errorf("got %v, want %v", f.Days, want)
	}
}

func TestDue(t *testing.T) {
	stored := usage.New("t", "i1", usage.Sandbox, noon)
	if f := stored; !f.Due(&stored) {
		t.Error("a fact that was never stored is not due")
	}
	stored = stored.Measure(noon, 320*time.Second)
	stored.Rev = 1
	for _, tt := range []struct {
		name  string
		after time.Duration
		grown time.Duration
		want  bool
	}{
		{"no growth", time.Hour, 0, false},
		{"a little", time.Second, 10 * time.Second, false},
		{"a 32nd and a second", time.Second, 11 * time.Second, true},
		{"a little, a minute later", time.Minute, time.Millisecond, true},
	} {
		f := stored.Measure(noon.Add(tt.after), 320*time.Second+tt.grown)
		if got := f.Due(&stored); got != tt.want {
			t.Errorf("%s: due is %v", tt.name, got)
		}
	}
}

func TestSumDoesNotChangeItsFacts(t *testing.T) {
	a := usage.New("t", "i1", usage.Sandbox, noon).Measure(noon, time.Second)
	b := usage.New("t", "c1", usage.Conversation, noon).Used(noon.Add(12*time.Hour), usage.Counters{InputTokens: 3, OutputTokens: 2, ToolCalls: 1})
	want := []usage.Daily{
		{usage.DayOf(noon), usage.Counters{CPU: time.Second, Sandboxes: 1, Sessions: 1}},
		{usage.DayOf(noon) + 1, usage.Counters{InputTokens: 3, OutputTokens: 2, ToolCalls: 1}},
	}
	for range 2 {
		if got := usage.Sum([]usage.Fact{a, b}); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestCents(t *testing.T) {
	for _, tt := range []struct {
		hour int64
		cpu  time.Duration
		want int64
	}{
		{5000, 0, 0}, {5000, time.Nanosecond, 0}, {5000, time.Millisecond, 1}, {5000, 12 * time.Minute, 1}, {5000, 12*time.Minute + time.Millisecond, 2},
		{5000, 100 * time.Hour, 500}, {0, time.Hour, 0}, {usage.MaxCPUHour, 100_000 * time.Hour, 100_000_000_000}, {1, 1000 * time.Hour, 1},
	} {
		if got := (usage.Price{CPUHour: tt.hour}).Cents(tt.cpu); got != tt.want {
			t.Errorf("%v at %d: %d cents, want %d", tt.cpu, tt.hour, got, tt.want)
		}
	}
}
