package record

import (
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Position is where a reader begins: after an event, or at the next new event. The zero
// value is the beginning of the record.
type Position struct {
	After process.Seq
	Now   bool // after the last stored event; After is ignored
}

// maxDigits is the number of digits of the greatest seq.
const maxDigits = 20

// ParsePosition parses a seq or "now"; an empty string is the beginning. Its errors are
// Invalid.
func ParsePosition(s string) (Position, error) {
	switch s {
	case "":
		return Position{}, nil
	case "now":
		return Position{Now: true}, nil
	}
	seq, err := ParseSeq(s)
	return Position{After: seq}, err
}

// ParseSeq parses a seq, which must consist of decimal digits.
func ParseSeq(s string) (process.Seq, error) {
	ok := len(s) > 0 && len(s) <= maxDigits
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] >= '0' && s[i] <= '9'
	}
	seq, err := strconv.ParseUint(s, 10, 64)
	if !ok || err != nil {
		return 0, kind.New(kind.Invalid, "parse position", "", `position: must be a seq or "now"`)
	}
	return seq, nil
}
