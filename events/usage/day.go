package usage

import (
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Day is a day of UTC: the number of days since 1970-01-01.
type Day int32

const dayLength = 24 * time.Hour

// DayOf returns the day of a time.
func DayOf(t time.Time) Day {
	s := t.Unix()
	d := s / int64(dayLength/time.Second)
	if s < 0 && s%int64(dayLength/time.Second) != 0 {
		d--
	}
	return Day(d)
}

// ParseDay parses a day in the form YYYY-MM-DD.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return 0, kind.New(kind.Invalid, "parse day", "", "a day must have the form YYYY-MM-DD")
	}
	return DayOf(t), nil
}

// Start returns the first moment of the day.
func (d Day) Start() time.Time { return time.Unix(int64(d)*int64(dayLength/time.Second), 0).UTC() }

// String returns the day in the form YYYY-MM-DD.
func (d Day) String() string { return d.Start().Format(time.DateOnly) }

// Month returns the first and the last day of the day's month.
func (d Day) Month() (first, last Day) {
	y, m, _ := d.Start().Date()
	return DayOf(time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)), DayOf(time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)) - 1
}
