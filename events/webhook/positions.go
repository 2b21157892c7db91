package webhook

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Positions are where a reader is in the events of sandboxes and of processes. Each has its own order.
type Positions struct{ Sandboxes, Processes Position }

const positionBase = 36

// String returns the positions in the form that [ParsePositions] parses.
func (p Positions) String() string {
	return strconv.FormatUint(uint64(p.Sandboxes), positionBase) + "-" + strconv.FormatUint(uint64(p.Processes), positionBase)
}

// ParsePositions parses positions from outside. It returns Invalid if String did not return it.
func ParsePositions(s string) (Positions, error) {
	a, b, ok := strings.Cut(s, "-")
	x, err := strconv.ParseUint(a, positionBase, 64)
	y, err2 := strconv.ParseUint(b, positionBase, 64)
	p := Positions{Position(x), Position(y)}
	if !ok || err != nil || err2 != nil || p.String() != s {
		return Positions{}, kind.New(kind.Invalid, "parse cursor", "", "cursor was not made by this API")
	}
	return p, nil
}

// Earlier returns the positions that are at or before both p and q.
func (p Positions) Earlier(q Positions) Positions {
	return Positions{min(p.Sandboxes, q.Sandboxes), min(p.Processes, q.Processes)}
}
