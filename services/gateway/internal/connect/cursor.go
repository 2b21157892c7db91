package connect

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/process"
)

// cursor is a client's position in a record.
type cursor struct {
	seq     process.Seq // last frame received completely
	sent    [2]uint64   // bytes of stdout and stderr received; valid only if partial
	partial bool        // some bytes of frames after seq were received
}

// append appends the cursor in the format of X-Replay-From.
func (p *cursor) append(dst []byte) []byte {
	if !p.partial {
		return strconv.AppendUint(dst, p.seq+1, 10)
	}
	return p.appendCursor(dst)
}

func (p *cursor) appendCursor(dst []byte) []byte {
	dst = strconv.AppendUint(dst, p.seq, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, p.sent[0], 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, p.sent[1], 10)
}

// replayFrom is the position from which a client resumes.
type replayFrom struct {
	cursor
	live bool // after everything stored; the cursor is ignored
}

// parseReplayFrom parses X-Replay-From: empty, a seq (the first frame to send),
// "live", or a cursor.
func parseReplayFrom(s string) (replayFrom, error) {
	switch s {
	case "":
		return replayFrom{}, nil
	case "live":
		return replayFrom{live: true}, nil
	}
	bad := fail(CodeInvalid, "X-Replay-From: want a seq, a cursor or \"live\", got %q", s)
	parts := strings.Split(s, ".")
	var n [3]uint64
	if len(parts) != 1 && len(parts) != len(n) {
		return replayFrom{}, bad
	}
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 64)
		if err != nil || part[0] == '+' {
			return replayFrom{}, bad
		}
		n[i] = v
	}
	if len(parts) == 1 {
		return replayFrom{cursor: cursor{seq: max(n[0], 1) - 1}}, nil
	}
	return replayFrom{cursor: cursor{seq: n[0], sent: [2]uint64{n[1], n[2]}, partial: true}}, nil
}
