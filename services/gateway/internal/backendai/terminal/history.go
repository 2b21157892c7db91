package terminal

import (
	"bytes"
	"strconv"

	"github.com/millrace/millrace/internal/vtfilter"
)

const (
	// Window is how much history is read.
	Window = 1 << 20
	// maxReplay is how much of it is replayed if the screen was not cleared meanwhile.
	maxReplay = 256 << 10
)

const (
	enterAlternate = "\x1b[?1049h"
	leaveAlternate = "\x1b[?1049l"
)

// cleared are sequences after which nothing of the screen before is left, and the cursor is at its
// beginning.
var cleared = []string{"\x1b[H\x1b[2J", "\x1b[H\x1b[J", "\x1b[2J\x1b[H", "\x1b[2J\x1b[1;1H", "\x1bc"}

// Replay returns the part of the history that shows the screen again, for a new terminal, and the
// filter for what follows it.
func Replay(history []byte) ([]byte, *vtfilter.Filter) {
	at := begin(history)
	out := modes(history[:at])
	f := new(vtfilter.Filter)
	return f.Replay(out, history[at:]), f
}

// begin returns where the replay begins: where the main screen was cleared last, or if that is
// too far back where any screen was, or else at the beginning of a line.
func begin(history []byte) int {
	entered := bytes.LastIndex(history, []byte(enterAlternate))
	inside := entered >= 0 && entered > bytes.LastIndex(history, []byte(leaveAlternate))
	outer := history
	if inside {
		outer = history[:entered]
	}
	at := lastCleared(outer)
	if len(history)-max(at, 0) <= maxReplay {
		return max(at, 0)
	}
	if inside {
		return entered
	}
	if at >= 0 {
		history = history[at:]
	}
	cut := len(history) - maxReplay
	if line := bytes.IndexByte(history[cut:], '\n'); line >= 0 {
		cut += line + 1
	}
	return max(at, 0) + cut
}

// lastCleared returns where a screen was cleared last, or -1.
func lastCleared(b []byte) int {
	at := -1
	for _, s := range cleared {
		at = max(at, bytes.LastIndex(b, []byte(s)))
	}
	return at
}

// modes returns the sequence that sets the private modes that were set last, such as those of the
// cursor keys. Those of the alternate screen are left out.
func modes(history []byte) []byte {
	set := make(map[int]bool)
	var order []int
	for {
		i := bytes.Index(history, []byte("\x1b[?"))
		if i < 0 {
			break
		}
		history = history[i+3:]
		n := bytes.IndexFunc(history, func(r rune) bool { return r != ';' && (r < '0' || r > '9') })
		if n < 0 {
			break
		}
		if final := history[n]; final == 'h' || final == 'l' {
			for p := range bytes.SplitSeq(history[:n], []byte(";")) {
				mode, err := strconv.Atoi(string(p))
				if err != nil || mode == 47 || mode == 1047 || mode == 1049 {
					continue
				}
				if _, seen := set[mode]; !seen {
					order = append(order, mode)
				}
				set[mode] = final == 'h'
			}
		}
		history = history[n:]
	}
	var out []byte
	var f vtfilter.Filter
	for _, m := range order {
		final := "l"
		if set[m] {
			final = "h"
		}
		out = f.Replay(out, []byte("\x1b[?"+strconv.Itoa(m)+final))
	}
	return out
}
