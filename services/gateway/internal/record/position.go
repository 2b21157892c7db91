package record

import (
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Place is where a reader wants to begin: after an event, or at what comes next.
// The zero value is the beginning of the record.
type Place struct {
	After process.Seq
	Now   bool // whatever After says
}

// maxDigits is the length of the greatest seq.
const maxDigits = 20

// ParsePlace reads a seq or "now"; the empty string is the beginning. Its errors
// are Invalid.
func ParsePlace(s string) (Place, error) {
	switch s {
	case "":
		return Place{}, nil
	case "now":
		return Place{Now: true}, nil
	}
	seq, err := ParseSeq(s)
	return Place{After: seq}, err
}

// ParseSeq reads a seq in decimal digits and nothing else.
func ParseSeq(s string) (process.Seq, error) {
	ok := len(s) > 0 && len(s) <= maxDigits
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] >= '0' && s[i] <= '9'
	}
	seq, err := strconv.ParseUint(s, 10, 64)
	if !ok || err != nil {
		return 0, kind.New(kind.Invalid, "parse place", "", `place: a seq or "now"`)
	}
	return seq, nil
}
