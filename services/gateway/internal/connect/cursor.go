package connect

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/process"
)

// cursor is a client's position in a record.
type place struct {
	seq   process.Seq // last frame received completely
	given [2]uint64   // bytes of stdout and stderr received; valid only if partial
	cut   bool        // some bytes of frames after seq were received
}

// append appends the cursor in the format of X-Replay-From.
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

// replayFrom is where a client asks to resume.
type wanted struct {
	place
	live bool // after everything stored; the cursor is ignored
}

// parseReplayFrom parses X-Replay-From: empty, a seq (the first frame to send),
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
