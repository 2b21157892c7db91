package signature

import "time"

// MaxSkew is how far the date of a request may be from the gateway's clock.
const MaxSkew = 15 * time.Minute

// layouts are the forms of dates: ISO 8601 with and without a zone, the basic form, and those of
// HTTP. Each accepts a fraction of a second.
var layouts = [...]string{
	time.RFC3339,
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05",
	"20060102T150405Z0700",
	"20060102T150405",
	"Mon, 02 Jan 2006 15:04:05 GMT",
	"Mon, 02 Jan 2006 15:04:05 UTC",
	time.RFC1123Z,
	"Monday, 02-Jan-06 15:04:05 GMT",
	time.ANSIC,
}

// ParseDate parses the date of a request. A date without a zone is in UTC.
func ParseDate(s string) (time.Time, error) {
	for _, l := range layouts {
		if t, err := time.Parse(l, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, invalid("the date of the request is missing or malformed")
}
