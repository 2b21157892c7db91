package client

import "time"

// timeForm is the format of times in data: RFC 3339 in UTC with milliseconds.
const timeForm = "2006-01-02T15:04:05.000Z"

// FormatTime returns t in the form of data.
func FormatTime(t time.Time) string { return t.UTC().Format(timeForm) }

// moment is a time in the CLI's JSON output. The zero time is null.
type moment struct{ time.Time }

// MarshalJSON writes the time in the form of [timeForm].
func (m moment) MarshalJSON() ([]byte, error) {
	if m.IsZero() {
		return []byte("null"), nil
	}
	return m.UTC().AppendFormat(nil, `"`+timeForm+`"`), nil
}
