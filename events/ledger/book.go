package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/millrace/millrace/events/usage"
)

// Book is the ledger of a tenant.
type Book struct {
	Entries []Entry // in the order of their times
	Days    []Day   // oldest first
	Topup   Topup
}

// Balance returns the sum of everything in the book, in cents.
func (b *Book) Balance() (sum int64) {
	for i := range b.Entries {
		sum += b.Entries[i].Cents
	}
	for i := range b.Days {
		sum -= b.Days[i].Cents
	}
	return sum
}

// Update returns the book with the days as of the usage that facts have on the day today. price is that
// of days that were not stored before. It does not change the book.
func (b Book) Update(used []usage.Daily, price usage.Price, today usage.Day) Book {
	days := make(map[usage.Day]Day, len(b.Days)+1)
	for _, d := range b.Days {
		days[d.Daily.Day] = d
	}
	for _, u := range used {
		days[u.Day] = days[u.Day].Update(u, price, today)
	}
	b.Days = slices.SortedFunc(maps.Values(days), func(x, y Day) int { return cmp.Compare(x.Daily.Day, y.Daily.Day) })
	return b
}

// Settled reports whether all days of a fact are settled, so that its removal changes nothing.
func (b *Book) Settled(f *usage.Fact) bool {
	for i := range f.Days {
		at, ok := slices.BinarySearchFunc(b.Days, f.Days[i].Day, func(d Day, day usage.Day) int { return cmp.Compare(d.Daily.Day, day) })
		if !ok || !b.Days[at].Settled {
			return false
		}
	}
	return true
}
