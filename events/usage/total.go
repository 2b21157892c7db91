package usage

import (
	"cmp"
	"slices"
	"time"
)

// Sum returns the usage of each day of all facts, oldest first.
func Sum(facts []Fact) []Daily {
	byDay := make(map[Day]Counters)
	for i := range facts {
		for _, d := range facts[i].Days {
			byDay[d.Day] = byDay[d.Day].Add(d.Counters)
		}
	}
	out := make([]Daily, 0, len(byDay))
	for day, c := range byDay {
		out = append(out, Daily{day, c})
	}
	slices.SortFunc(out, func(a, b Daily) int { return cmp.Compare(a.Day, b.Day) })
	return out
}

// Seconds returns the whole seconds of CPU time of a day.
func (d *Daily) Seconds() int64 { return int64(d.CPU / time.Second) }

// Price is the price of usage. The zero value is free.
type Price struct {
	CPUHour int64 // of an hour of CPU time, in thousandths of a cent
}

// MaxCPUHour is the maximum of Price.CPUHour: 10,000 dollars.
const MaxCPUHour = 1_000_000_000

// Cents returns the price of the CPU time of one tenant and day, rounded up to a whole cent. CPU
// time is counted in milliseconds.
func (p Price) Cents(cpu time.Duration) int64 {
	const perHour = int64(time.Hour/time.Millisecond) * 1000
	ms := cpu.Milliseconds()
	whole, rest := ms/perHour, ms%perHour // the product of rest and the price fits
	return whole*p.CPUHour + (rest*p.CPUHour+perHour-1)/perHour
}
