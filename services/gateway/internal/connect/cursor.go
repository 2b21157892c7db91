package connect

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/process"
)

// place is where in a record a client is.
type place struct {
	seq   process.Seq // the last frame it has whole
	given [2]uint64   // bytes of stdout and stderr it has; counts only if cut
	cut   bool        // it has bytes of frames after seq
}

// append appends the place as X-Replay-From takes it.
func (p *place) append(dst []byte) []byte {
	if !p.cut {
		return strconv.AppendUint(dst, p.seq+1, 10)
	}
	return p.appendCursor(dst)
}

func (p *place) appendCursor(dst []byte) []byte {
	dst = strconv.AppendUint(dst, p.seq, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, p.given[0], 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, p.given[1], 10)
}

// wanted is where a client asks to go on.
type wanted struct {
	place
	live bool // after what is stored, whatever the place says
}

// parseWanted reads X-Replay-From: nothing, a seq (the first frame to send),
// "live", or a cursor.
func parseWanted(s string) (wanted, error) {
	switch s {
	case "":
		return wanted{}, nil
	case "live":
		return wanted{live: true}, nil
	}
	bad := fail(CodeInvalid, "X-Replay-From: want a seq, a cursor or \"live\", got %q", s)
	parts := strings.Split(s, ".")
	var n [3]uint64
	if len(parts) != 1 && len(parts) != len(n) {
		return wanted{}, bad
	}
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 64)
		if err != nil || part[0] == '+' {
			return wanted{}, bad
		}
		n[i] = v
	}
	if len(parts) == 1 {
		return wanted{place: place{seq: max(n[0], 1) - 1}}, nil
	}
	return wanted{place: place{seq: n[0], given: [2]uint64{n[1], n[2]}, cut: true}}, nil
}
